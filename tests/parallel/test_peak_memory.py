"""The largest memory of a process: without the pages of files that it maps."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bigtrk.parallel.world import PeakMemory

CPU = torch.device("cpu")
SIZE = 100 * 2**20
# Maps a file of SIZE bytes and reads a byte of each page, or holds as many bytes of its own, or
# both at once, looks, and lets them go.
GROWS = """
import mmap, sys, torch
from pathlib import Path
from bigtrk.parallel.world import PeakMemory
way, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
memory = PeakMemory(torch.device("cpu"))
before = memory.n_bytes
if way != "own":
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert sum(mapped[place] for place in range(0, size, mmap.PAGESIZE)) == 0
    status = Path("/proc/self/status").read_text()
    resident = int(next(l for l in status.splitlines() if "RssFile" in l).split()[1])
    assert resident * 1024 > size
if way != "file":
    held = b"1" * size
    del held
memory.look()
if way != "own":
    mapped.close()
print(memory.n_bytes - before)
"""


@pytest.mark.parametrize("way", ["file", "both"])
def test_pages_of_files_do_not_count_and_what_was_freed_does(tmp_path: Path, way: str) -> None:
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.truncate(SIZE)
    command = [sys.executable, "-c", GROWS, way, str(path), str(SIZE)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    grown = int(ended.stdout) / SIZE
    assert grown == pytest.approx(float(way != "file"), abs=0.03)


def test_what_grows_while_pages_of_files_are_dropped_counts(tmp_path: Path) -> None:
    """Both together then have no new peak."""
    status = tmp_path / "status"
    memory = PeakMemory(CPU, status)
    for file, own in ((2000, 3000), (600, 4400), (2000, 1000)):
        status.write_text(told(5000, file, own))
        memory.look()
    assert memory.n_bytes == 4400 * 1024


def told(highest: int, file: int, own: int) -> str:
    """The lines of the kernel, in KiB."""
    return f"VmHWM:\t  {highest} kB\nRssAnon:\t  {own} kB\nRssFile:\t  {file} kB\n"
