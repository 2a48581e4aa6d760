"""The commands of docs/search.md, in their order, on smaller events."""

import json
import re
from pathlib import Path

import pytest

from bigtrk.records.run_folder import read_run
from bigtrk.studies.search.space import read_space
from tests.programs import CHECKOUT, run_in_one
from tests.reports.pages import parsed

PAGE = (CHECKOUT / "docs" / "search.md").read_text()
FILES = dict(
    zip(
        ("space.yaml", "population.yaml"),
        re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL),
        strict=True,
    )
)
COMMANDS = "".join(re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL))


def write(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).write_text(text)


def test_the_spaces_are_such(tmp_path: Path) -> None:
    write(tmp_path)
    assert len(read_space(tmp_path / "space.yaml").settings) == 3
    assert read_space(tmp_path / "population.yaml").population


@pytest.mark.slow
def test_the_commands_run(tmp_path: Path) -> None:
    write(tmp_path)
    run_in_one(COMMANDS.replace("--particles 60", "--particles 30").splitlines(), tmp_path)
    for name in ("search", "population"):
        titles = [figure.title for figure in parsed(tmp_path / f"{name}.html").figures]
        assert titles == ["AUC, % by trial"]
    rounds = json.loads((tmp_path / "population" / "result.json").read_text())["rounds"]
    assert len(rounds) == 16
    assert [one["source"] is None for one in rounds[:4]] == [True] * 4
    trials = json.loads((tmp_path / "search" / "result.json").read_text())["trials"]
    assert {trial["number"] for trial in trials} == {0, 1, 2, 3}
    assert {trial["state"] for trial in trials} <= {"complete", "pruned"}
    for trial in trials:
        run = read_run(tmp_path / "search" / f"trial{trial['number']:04d}")
        aucs = [epoch.validation.auc for epoch in run.epochs if epoch.validation]
        known = [auc for auc in aucs if auc is not None]
        assert run.record.config["model"]["hidden"] == trial["settings"]["model.hidden"]
        if trial["state"] == "complete":
            assert trial["value"] == max(known)
            assert len(run.epochs) == 4
            assert run.best is not None
            assert run.best.value == trial["value"]
