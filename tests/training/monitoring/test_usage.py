"""The largest memory of a process: without the pages of files that it maps."""

import subprocess
import sys
from pathlib import Path

import pytest

from bigtrk.training.monitoring.usage import own_peak

SIZE = 100 * 2**20
# Maps a file of SIZE bytes, reads a byte of each page, or holds as many bytes of its own for once.
GROWS = """
import mmap, sys
from pathlib import Path
from bigtrk.training.monitoring.usage import own_peak
way, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
status = Path("/proc/self/status")
before = own_peak(status)
if way == "file":
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert sum(mapped[place] for place in range(0, size, mmap.PAGESIZE)) == 0
    resident = int(next(l for l in status.read_text().splitlines() if "RssFile" in l).split()[1])
    assert resident * 1024 > size
else:
    held = b"1" * size
    del held
print(own_peak(status) - before)
"""


@pytest.mark.parametrize("way", ["file", "own"])
def test_pages_of_files_do_not_count_and_what_was_freed_does(tmp_path: Path, way: str) -> None:
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.truncate(SIZE)
    command = [sys.executable, "-c", GROWS, way, str(path), str(SIZE)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    grown = int(ended.stdout) / SIZE
    assert grown == pytest.approx(float(way == "own"), abs=0.03)


def test_where_the_system_does_not_tell_them_apart_both_count(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmRSS:\t  300000 kB\n")
    assert own_peak(status) > own_peak(Path("/proc/self/status"))
    status.write_text("Name:\tVmHWM: python\nVmHWM:\t  5000 kB\nRssFile:\t  2000 kB\n")
    assert own_peak(status) == 3000 * 1024
