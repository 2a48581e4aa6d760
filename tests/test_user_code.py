"""Code of users' own is imported where they named it, and refused where a run alone names it."""

import hashlib
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from bigtrk import user_code
from bigtrk.console import ended_by_sigterm
from bigtrk.errors import InputError
from bigtrk.user_code import allow_code, code_options, code_origin, load_code, names_code, no_exit
from tests.programs import CHECKOUT, run_python


@pytest.fixture(autouse=True)
def folder(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Starts in a folder of modules; imports nothing for the tests that follow."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(user_code, "_allowed", set())
    (workdir / "users_own.py").write_text("class Net: ...\n")
    (workdir / "users_leaving.py").write_text("raise SystemExit(0)\n")
    (workdir / "users_broken.py").write_text("1 / 0\n")
    yield workdir
    sys.modules.pop("users_own", None)


def test_a_module_that_the_user_named_is_imported_from_the_working_folder() -> None:
    allow_code(["users_own:Net"])
    assert load_code("users_own:Net", "model.name").__module__ == "users_own"


@pytest.mark.parametrize("name", ["net.py", "models/net", ""])
def test_a_file_is_no_name_of_a_module(name: str) -> None:
    with pytest.raises(InputError, match=r"is no name of a module; .* --code package\.module"):
        allow_code([name])
    assert not code_options()


def test_what_may_be_imported_is_passed_on_to_other_programs() -> None:
    allow_code(["users_own:Net", "users.other", "users_own"])
    assert code_options() == ["--code", "users.other", "--code", "users_own"]


def test_code_is_of_a_version_or_of_a_files_digest(folder: Path) -> None:
    allow_code(["users_own"])
    digest = hashlib.sha256((folder / "users_own.py").read_bytes()).hexdigest()
    assert code_origin("users_own:Net", "model.name") == (str(folder / "users_own.py"), digest)
    assert code_origin("torch.nn:Linear", "model.name") == ("torch", version("torch"))


def test_an_installed_module_needs_no_word() -> None:
    assert load_code("numpy.linalg:norm", "training.loss").__name__ == "norm"


def test_packages_of_bigtrk_do_not_hide_modules_of_their_names(folder: Path) -> None:
    """A script's folder leads the search path: in that of the training `models` is a package."""
    (folder / "models.py").write_text("Net = None\n")
    done = run_python([CHECKOUT / "bigtrk" / "train.py", "model.name=models:Absent"], folder)
    assert done.returncode == 2, done.stderr
    assert f"models ({folder / 'models.py'}) has no 'Absent'" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("allowed", "name", "words"),
    [
        ([], "users_own:Net", "model.name=users_own:Net: the module users_own belongs to.*--code"),
        (["users_own"], "users_own:Other", r"users_own \(.*users_own.py\) has no 'Other'"),
        (["users_none"], "users_none:Net", "ModuleNotFoundError.*start in the folder"),
        (["users_broken"], "users_broken:Net", "ZeroDivisionError: division by zero.*correct it"),
        (["users_leaving"], "users_leaving:Net", r"calls sys.exit\(0\), which would.*correct it"),
    ],
)
def test_a_failing_import_is_told_in_a_line(allowed: list[str], name: str, words: str) -> None:
    allow_code(allowed)
    with pytest.raises(InputError, match=words) as failure:
        load_code(name, "model.name")
    assert "\n" not in str(failure.value)
    assert "users_own" not in sys.modules or allowed


def test_names_of_code_have_a_module_and_a_name_in_it() -> None:
    names = ("my.module:Net", "interaction", "a:", "a b:c")
    assert [names_code(name) for name in names] == [True, False, False, False]


def test_sigterm_in_users_code_ends_the_program_and_other_threads_take_none() -> None:
    with pytest.raises(SystemExit), ended_by_sigterm(), no_exit():
        signal.raise_signal(signal.SIGTERM)
    with ThreadPoolExecutor(1) as thread, ended_by_sigterm():
        assert thread.submit(ended_by_sigterm().__enter__).result() is None
