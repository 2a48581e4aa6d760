"""The program without a command."""

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
