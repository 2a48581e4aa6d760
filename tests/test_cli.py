"""The program without a command."""

from pathlib import Path

import pytest

import bigtrk
from tests.programs import run_here


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_here(["bigtrk", "--version"], monkeypatch, capsys)
    assert found == (0, f"bigtrk {bigtrk.__version__}\n", "")


def test_unknown_command_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, error = run_here(["bigtrk", "trian"], monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert error.startswith("bigtrk: error: No such command")
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_a_page_needs_a_folder_that_is_there(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before the run is read: an evaluation may take an hour."""
    arguments = [str(tmp_path / "run"), *([str(tmp_path)] if command == "evaluate" else [])]
    for page, said in (("missing/page.html", "no such folder"), (".", "is a folder")):
        asked = ["bigtrk", command, *arguments, "--html", str(tmp_path / page)]
        status, _, errors = run_here(asked, monkeypatch, capsys)
        assert status == 2
        assert said in errors
        assert not list(tmp_path.iterdir())
