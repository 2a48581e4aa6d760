"""A search from its command line: what its trials train, and what is refused before any does."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bigtrk.errors import InputError
from bigtrk.records.search import TrialRecord
from bigtrk.shipped import TRAIN
from bigtrk.studies.search import plan as planning
from bigtrk.studies.search.outcomes import show_outcomes
from bigtrk.studies.search.plan import Search, open_search, plan_search
from bigtrk.studies.search.trainings import make_launcher, share_host
from tests.distributed.graphs import random_graph
from tests.distributed.runs import write_in_sectors
from tests.programs import run_here
from tests.studies.search.test_space import write

SPACE = "metric: auc\nspace:\n  model.hidden: {low: 4, high: 16}\n  optimizer.lr: [0.1, 0.01]\n"
EMPTY = Path("empty.yaml")
Plan = Callable[..., Search]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three events in `graphs`."""
    folder = tmp_path_factory.mktemp("events")
    (folder / EMPTY).touch()
    write_in_sectors(folder, [random_graph(seed, 30, 90) for seed in range(3)], 2)
    return folder


@pytest.fixture
def plan(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plans a search in tmp_path/out, from the folder with the events."""
    monkeypatch.chdir(folder)

    def make(*arguments: str, space: str = SPACE, storage: Any = None) -> Search:
        file = write(tmp_path, space)
        return plan_search(file, ["graphs", *arguments], EMPTY, tmp_path / "out", storage, 4)

    return make


def test_a_trial_is_a_training_with_its_settings_in_a_folder_of_its_number(
    plan: Plan, folder: Path, tmp_path: Path
) -> None:
    search = plan("model.layers=1")
    config, *overrides = search.arguments(7, {"model.hidden": 12, "optimizer.lr": 0.01})
    assert Path(config) == folder / EMPTY
    given = dict(item.split("=", 1) for item in overrides)
    assert given.pop("run.folder") == str(tmp_path / "out" / "trial0007")
    assert json.loads(given.pop("data.train")) == ["graphs"]
    assert given == {
        "model.layers": "1",
        "training.best.metric": "auc",
        "model.hidden": "12",
        "optimizer.lr": "0.01",
    }


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (
            "metric: auc\nspace: {model.hiden: [8, 16]}",
            r"space.yaml: space.model.hiden: .*unknown key 'model.hiden'; did you mean 'model.hid",
        ),
        (
            "metric: auc\nspace: {model.hidden: {low: 0, high: 16}}",
            r"space.model.hidden: override 'model.hidden=0': model.hidden: Input should be greater",
        ),
        ("metric: auc\nspace: {model.name: [interaction, transformer]}", "space.model.name: "),
        ("metric: log_pt_error\nspace: {model.hidden: [8, 16]}", "set training.pt_weight"),
        (
            "metric: auc\nspace: {model.name: [interaction, embedding]}",
            r"space.model.name: training.best.metric=auc: embedding embeds hits",
        ),
        ("metric: auc\nspace: {data.validation: [0, 1]}", "there is no event to validate on"),
        ("metric: auc\nspace: {data.train: [[a], [b]]}", r"data.train=.*space searches data.train"),
        ("metric: auc\nspace: {data.events: [1, 9]}", "space.data.events: .* are 2 events"),
    ],
)
def test_settings_that_no_trial_could_have_are_refused(plan: Plan, space: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan(space=space)


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("data.validation=0", "auc: there is no event to validate on, so that no epoch records it"),
        ("model.hidden=8", "model.hidden=8: the space searches model.hidden; leave it out"),
        ("run.folder=here", "run.folder=here: bigtrk search sets run.folder; use --out"),
        ("training.best.metric=loss", "name it as the metric of the space"),
        ("optimizer={lr: 1}", "optimizer={lr: 1}: the space searches optimizer.lr; leave it out"),
        ("training.best={metric: loss}", "bigtrk search sets training.best.metric; name it"),
        ("model.layer=8", "did you mean 'model.layers'"),
        ("data.events=9", "there are 2 events to train on"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(plan: Plan, argument: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan(argument)


def test_sqlite_is_not_laid_on_a_network_disk(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(planning, "network_file_system", lambda _: "lustre")
    with pytest.raises(InputError) as caught:
        plan()
    assert str(caught.value) == (
        f"{tmp_path / 'out'}: lies on a network disk (lustre), where SQLite may lose what it "
        f"writes; name a database by --storage URL, or choose an --out on a local disk"
    )
    assert plan(storage="postgresql://node/study").storage == "postgresql://node/study"


def test_a_folder_holds_one_search(plan: Plan, tmp_path: Path) -> None:
    open_search(plan("model.layers=2"))
    before = (tmp_path / "out" / "search.json").read_bytes()
    open_search(plan("model.layers=2"))
    assert (tmp_path / "out" / "search.json").read_bytes() == before
    for change, said in (
        ({"arguments": ("model.layers=3",)}, r"configuration \(model.layers 2 instead of 3\)"),
        ({"space": SPACE.replace("16", "32")}, r"space \(model.hidden.high 16 instead of 32\)"),
        ({"space": SPACE + "seed: 1\n"}, r"another seed \(0 instead of 1\)"),
        ({"space": SPACE + "pruning: null\n"}, r"another pruning"),
    ):
        options: dict[str, Any] = dict(change)
        arguments = options.pop("arguments", ("model.layers=2",))
        with pytest.raises(InputError, match=said):
            open_search(plan(*arguments, **options))


def test_a_folder_that_holds_something_else_is_left(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(InputError, match="out: holds something else; choose another --out"):
        open_search(plan())


def test_the_best_trial_is_told_with_names_that_a_shell_takes(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = replace(plan(), folder=tmp_path / "my search")
    outcomes = [TrialRecord(number=0, state="complete", value=0.9, epochs=3)]
    best = tmp_path / "my search" / "trial0000"
    show_outcomes(search, outcomes, Console(file=StringIO()))
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == f"the best was {best}, a folder that is gone; its settings are in the table"
    best.mkdir(parents=True)
    show_outcomes(search, outcomes, Console(file=StringIO()))
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == f"the best: bigtrk report '{best}'; its best weights: '{best}/best.safetensors'"


def test_bad_input_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, error = run_here(["bigtrk", "search", "space.yaml"], monkeypatch, capsys)
    assert (status, error) == (
        2,
        "bigtrk: error: space.yaml: no such file; correct the name or its folder's\n",
    )


def test_places_share_a_host_without_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)))
    places = share_host(2, 1, ["4", "5", "6"])
    assert [place.devices for place in places] == [("4",), ("5",)]
    assert places[0].environment == {"CUDA_VISIBLE_DEVICES": "4"}
    assert [(place.first, place.cores) for place in places] == [(0, 2), (2, 2)]
    with pytest.raises(InputError, match=r"--at-once 4: this host has 3 accelerators for 4 trials"):
        share_host(4, 1, ["4", "5", "6"])
    with pytest.raises(InputError, match="--at-once 6: this host has 5 cores"):
        share_host(6, 2, [])


def test_the_launcher_is_the_users_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    alone = make_launcher(1, None)
    assert alone.command(["--resume", "run"])[1:] == [str(TRAIN), "--resume", "run"]
    assert not {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_RANK"} & alone.environment().keys()
    assert "--nproc-per-node=3" in make_launcher(3, None).command([])
    own = make_launcher(1, "env A=1 python")
    assert own.command(["a=1"]) == ["env", "A=1", "python", str(TRAIN), "a=1"]
    assert own.environment()["SLURM_STEP_NUM_TASKS"] == "4"
    complaints = {
        "": "--launcher: name a command",
        "env 'python": "is no command",
        "no-such-program python": "no such program no-such-program",
    }
    for bad, said in complaints.items():
        with pytest.raises(InputError, match=said):
            make_launcher(1, bad)


def test_a_trial_has_all_cores_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    launchers = [make_launcher(1, None), make_launcher(1, "env python"), make_launcher(2, None)]
    monkeypatch.delenv("OMP_NUM_THREADS")
    # Torchrun would say that it sets 1, which counts for nothing there.
    found = [one.environment().get("OMP_NUM_THREADS") for one in launchers]
    assert found == [None, None, "1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = [one.environment()["OMP_NUM_THREADS"] for one in launchers]
    assert found[:2] == ["3", "3"]
