"""A folder is either absent or whole, and replaced at once."""

from pathlib import Path

import pytest

from bigtrk.disk.files import new_folder, whole_folder
from bigtrk.errors import InputError


def fill(path: Path, name: str) -> None:
    with whole_folder(path) as folder:
        (folder / name).write_text(name)
        assert not (path / name).exists()


def names(path: Path) -> list[str]:
    return sorted(one.relative_to(path).as_posix() for one in path.rglob("*"))


def test_it_is_made_and_replaced_and_left_where_writing_fails(tmp_path: Path) -> None:
    def failing(path: Path) -> None:
        with whole_folder(path) as folder:
            (folder / "three").write_text("")
            raise OSError("full")

    for name in ("one", "two"):
        fill(tmp_path / "some" / "out", name)
    for name in ("some/out", "absent"):
        with pytest.raises(OSError, match="full"):
            failing(tmp_path / name)
    assert names(tmp_path) == ["some", "some/out", "some/out/two"]


def test_it_is_put_back_where_renaming_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "out", "one")
    rename = Path.rename

    def refusing(self: Path, target: Path) -> Path:
        if self.name.endswith(".tmp"):
            raise OSError("refused")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(OSError, match="refused"):
        fill(tmp_path / "out", "two")
    assert names(tmp_path) == ["out", "out/one"]


def test_what_is_there_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("file", "full", "link"):
        with (
            pytest.raises(InputError, match=rf"{name}: holds something already; name a new"),
            new_folder(tmp_path / name),
        ):
            pass
    with pytest.raises(InputError, match="link: is a symbolic link"):
        fill(tmp_path / "link", "one")
    assert (tmp_path / "full" / "a").read_text() == "mine"
    assert list((tmp_path / "empty").iterdir()) == []
