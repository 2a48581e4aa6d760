"""The commands of the pages of docs, in their order, on smaller events."""

import re
import shutil
from pathlib import Path

import pytest
import torch

from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.records.live import scalars
from bigtrk.studies.search.plan import read_space
from bigtrk.training.settings import Configuration
from tests.formats.acorn.events import columns, load, write
from tests.programs import CHECKOUT, Run, output_of, run_in_one
from tests.reports.run_folders import epoch_record, run_writer, step_record

ACORN_PAGE = (CHECKOUT / "docs" / "acorn.md").read_text()
ON_GRAPHS = ACORN_PAGE.partition("## Weights")[0]
ACORN_SMALL = " model.hidden=8 model.layers=1 training.epochs=1"


def test_the_commands_on_graphs(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        split = "valset" if number == 3 else "trainset"
        write(tmp_path / "stage" / split / f"event{number:09d}.pyg.gz", columns(number), batch=True)
    found = re.findall(r"```sh\n(.*?)```", ON_GRAPHS, flags=re.DOTALL)
    commands = [line for block in found for line in block.splitlines()]
    assert len(commands) == 5
    trained = [line + ACORN_SMALL if line.startswith("bigtrk train") else line for line in commands]
    run_in_one(trained, tmp_path)
    scored = load(tmp_path / "scored" / "valset" / "event000000003.pyg")
    assert torch.equal(scored["edge_index"], columns(3)["edge_index"])
    assert ((scored["edge_scores"] > 0) & (scored["edge_scores"] < 1)).all()
    for_training = load(tmp_path / "mine" / "trainset" / "event000000001.pyg")
    assert "edge_scores" not in for_training


ACTS_PAGE = (CHECKOUT / "docs" / "acts.md").read_text()


def test_the_commands_of_acts(tmp_path: Path) -> None:
    """Runs on smaller events."""
    [block] = re.findall(r"```sh\n(.*?)```", ACTS_PAGE, flags=re.DOTALL)
    commands = block.replace("--particles 500", "--particles 60").splitlines()
    run_in_one([line.replace("epochs=3", "epochs=1") for line in commands], tmp_path)
    written = {path.name for path in (tmp_path / "for-acts").iterdir()}
    named = set(re.findall(r"`(classifier\w*\.\w+)`", ACTS_PAGE))
    assert named < written
    assert "README.md" in written


COLLIDERML_PAGE = (CHECKOUT / "docs" / "colliderml.md").read_text()
READING = COLLIDERML_PAGE.partition("## Submission")[0]
CACHE = "CERN__ColliderML-Release-1"


def lay_like_the_cache(sample: Path, folder: Path) -> None:
    """Copies a sample to where the package colliderml downloads one of 200 pile-up."""
    for table in ("tracker_hits", "particles"):
        name = f"ttbar_pu200_{table}"
        shutil.copytree(sample / table, folder / CACHE / name / "data" / name)


def test_the_page_of_colliderml(
    workdir: Path, capsys: pytest.CaptureFixture[str], run_program: Run
) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", READING, flags=re.DOTALL)
    for command in "".join(blocks).splitlines():
        if CACHE in command:
            lay_like_the_cache(workdir / "sample", workdir)
        small = re.sub(r"--particles \d+", "--particles 60", command).split()
        output_of(run_program(small))
    (script,) = re.findall(r"```python\n(.*?)```", READING, flags=re.DOTALL)
    variables: dict[str, object] = {}
    exec(script, variables)
    assert re.search(r"\d+ hits of 60 particles", capsys.readouterr().out)
    graphs = {name: GraphFolder(workdir / name) for name in ("graphs", "others", "released")}
    assert {name: len(folder.events) for name, folder in graphs.items()} == {
        "graphs": 8,
        "others": 4,
        "released": 12,
    }
    for folder in graphs.values():
        assert folder.manifest["parameters"]["from"] == "colliderml"
        efficiency = folder.record(folder.events[0])["target_efficiency"]
        assert efficiency is None or efficiency > 0.8


PYTHON_PAGE = (CHECKOUT / "docs" / "python.md").read_text()
PYTHON_EXAMPLES = PYTHON_PAGE[: PYTHON_PAGE.index("## For code of your own")]


@pytest.mark.usefixtures("workdir")
def test_the_examples_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    """They run on smaller events, in one process, as a notebook would."""
    found = re.findall(r"```python\n(.*?)```", PYTHON_EXAMPLES, flags=re.DOTALL)
    assert len(found) == 2
    variables: dict[str, object] = {}
    for code in found:
        exec(code.replace("particles=500", "particles=100"), variables)
    assert re.search(r"event000000007: \d+ hits, \d+ tracks", capsys.readouterr().out)


SEARCH_PAGE = (CHECKOUT / "docs" / "search.md").read_text()


def test_the_spaces_are_such(tmp_path: Path) -> None:
    """The tests of searches run such commands."""
    spaces = []
    for text in re.findall(r"```yaml\n(.*?)```", SEARCH_PAGE, flags=re.DOTALL):
        (tmp_path / "space.yaml").write_text(text)
        spaces.append(read_space(tmp_path / "space.yaml"))
    assert len(spaces[0].settings) == 3
    assert [bool(space.population) for space in spaces] == [False, True]


WATCH_PAGE = (CHECKOUT / "docs" / "watch.md").read_text()


def test_the_command_shows_runs(workdir: Path, run_program: Run) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", WATCH_PAGE, flags=re.DOTALL)
    (command,) = block.splitlines()
    make = run_writer(workdir / "runs")
    make("0001")
    make("0002")
    status, printed, errors = run_program(command.split())
    assert (status, errors) == (0, "")
    assert "0002  ended before its end; bigtrk resume runs/0002 goes on" in printed.splitlines()


def test_the_names_and_loggers_of_the_page_are_there() -> None:
    names = {name for record in (step_record(0), epoch_record(0)) for name, _ in scalars(record)}
    assert set(re.findall(r"`((?:step|epoch|validation)/[a-z_/]+)`", WATCH_PAGE)) <= names
    (loggers,) = re.findall(r"`run\.loggers=([a-z,]+)`", WATCH_PAGE)
    settings = Configuration.model_validate({"run": {"loggers": loggers.split(",")}})
    assert settings.run.loggers == ("tensorboard", "wandb", "mlflow")
