"""The windows file: what is written is read, what is wrong is named."""

from pathlib import Path

import pytest
import yaml

from bigtrk.errors import InputError
from bigtrk.graphs.builders.windows import Windows, builtin_windows, read_windows, write_windows

ROW = (
    "{inner: [8, 2], outer: [8, 4], edges: 3, "
    "phi_slope: 1e-3, dphi: 0.1, z0: [-9, 9], deta: [-1, 1]}"
)


def written(path: Path, *rows: str) -> Path:
    path.write_text("made: by hand\npairs:\n" + "".join(f"- {row}\n" for row in rows))
    return path


def test_round_trip(tmp_path: Path) -> None:
    windows = builtin_windows()
    path = tmp_path / "windows.yaml"
    write_windows(path, windows)
    assert read_windows(path) == windows
    content = yaml.safe_load(path.read_text())
    assert len(content["pairs"]) == len(windows.pairs)
    assert len(path.read_text().splitlines()) < len(windows.pairs) + 8, "one line per pair"


def test_the_digest_is_of_the_cuts(tmp_path: Path) -> None:
    windows = read_windows(written(tmp_path / "a.yaml", ROW))
    renamed = Windows(made="otherwise", pairs=windows.pairs)
    moved = read_windows(written(tmp_path / "b.yaml", ROW.replace("0.1", "0.2")))
    assert windows.digest() == renamed.digest() != moved.digest()


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([ROW, ROW], r"layer pair \(8, 2\) to \(8, 4\) appears twice"),
        ([], "pairs"),
        ([ROW.replace("dphi: 0.1", "dphi: 3.2")], r"pairs.0.dphi: .* less than 3.14"),
        ([ROW.replace("[-9, 9]", "[-9]")], r"pairs.0.z0"),
        ([ROW.replace("1e-3", ".nan")], r"pairs.0.phi_slope"),
        ([ROW.replace("deta", "dteta")], r"dteta"),
        ([ROW.replace("[-9, 9]", "[9, -9]")], r"pairs.0.z0"),
    ],
)
def test_bad_windows_are_named(tmp_path: Path, rows: list[str], complaint: str) -> None:
    path = written(tmp_path / "bad.yaml", *rows)
    with pytest.raises(InputError, match=complaint) as raised:
        read_windows(path)
    assert str(path) in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml"):
        read_windows(tmp_path / "none.yaml")
