"""The command of docs/watch.md, on runs that are over, and what the page says of names."""

import re
from pathlib import Path

import pytest

from bigtrk.reports.watch import SHOWN
from bigtrk.training.settings import Configuration
from tests.programs import CHECKOUT, run_here
from tests.reports.run_folders import run_writer

PAGE = (CHECKOUT / "docs" / "watch.md").read_text()


def test_the_command_shows_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    (command,) = block.splitlines()
    make = run_writer(tmp_path / "runs")
    make("0001")
    make("0002")
    monkeypatch.chdir(tmp_path)
    status, printed, errors = run_here(command.split(), monkeypatch, capsys)
    assert (status, errors) == (0, "")
    assert "0002  ended before its end; bigtrk resume runs/0002 goes on" in printed.splitlines()


def test_the_names_and_loggers_of_the_page_are_there() -> None:
    assert set(re.findall(r"`((?:step|epoch|validation)/[a-z_/]+)`", PAGE)) <= SHOWN.keys()
    (loggers,) = re.findall(r"`run\.loggers=([a-z,]+)`", PAGE)
    settings = Configuration.model_validate({"run": {"loggers": loggers.split(",")}})
    assert settings.run.loggers == ("tensorboard", "wandb", "mlflow")
