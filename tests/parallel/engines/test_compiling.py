"""DeepSpeed compiles where nobody else does, and a job killed in it does not hold up the next."""

import multiprocessing
import pwd
import time
from pathlib import Path

import pytest
from torch.utils.cpp_extension import _get_build_directory

from bigtrk.errors import InputError
from bigtrk.parallel.engines.compiling import extension_folder, one_compiler


def test_a_lock_that_a_killed_job_left_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = tmp_path / "py311_cpu" / "deepspeed_shm_comm" / "lock"
    left.parent.mkdir(parents=True)
    left.touch()
    with one_compiler(tmp_path):
        assert not left.exists()
    assert "at its first use" in capsys.readouterr().out
    (left.parent / "deepspeed_shm_comm.so").touch()
    with one_compiler(tmp_path):
        pass
    assert capsys.readouterr().out == ""


def test_the_lock_is_not_opened_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "bigtrk.lock").symlink_to(precious)
    with pytest.raises(InputError, match=r"bigtrk.lock: is a symbolic link"):
        one_compiler(tmp_path / "folder").__enter__()
    assert precious.read_text() == "kept"


def hold(folder: Path) -> None:
    with one_compiler(folder):
        (folder / "held").touch()
        time.sleep(60)


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    holder = multiprocessing.get_context("spawn").Process(target=hold, args=(tmp_path,))
    holder.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.05)
    holder.kill()
    holder.join()
    start = time.monotonic()
    with one_compiler(tmp_path):
        assert time.monotonic() - start < 60


@pytest.mark.parametrize("cache", ["", "here"])
def test_torch_compiles_in_no_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "")
    folder = extension_folder()
    assert folder == tmp_path / "home/.cache/torch_extensions"
    assert Path(_get_build_directory("op", verbose=False)).is_relative_to(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_user_without_a_home_is_asked_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    for variable in ("HOME", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(OSError, match="has no home folder: set XDG_CACHE_HOME"):
        extension_folder()


def test_a_folder_that_cannot_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(OSError, match=r"file/torch_extensions: .* set TORCH_EXTENSIONS_DIR"),
        one_compiler(tmp_path / "file" / "torch_extensions"),
    ):
        pass
