"""A search from its command line: what its trials train, and what is refused before any does."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bigtrk.errors import InputError
from bigtrk.shipped import TRAIN
from bigtrk.studies.search import trainings
from bigtrk.studies.search.plan import Search, plan_search
from bigtrk.studies.search.trainings import make_places
from tests.distributed.graphs import random_graph
from tests.distributed.runs import write_in_sectors
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

    def make(*arguments: str, space: str = SPACE) -> Search:
        file = write(tmp_path, space)
        return plan_search(file, ["graphs", *arguments], EMPTY, tmp_path / "out", 4)

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
    ("space", "argument", "said"),
    [
        ("{model.hiden: [8, 16]}", "", r"model.hiden=8: .*; did you mean 'model.hid"),
        (
            "{model.hidden: {low: 0, high: 16}}",
            "",
            r"model.hidden=0: setting 'model.hidden=0': model.hidden: Input should be greater",
        ),
        ("{data.validation: [0, 1]}", "", "data.validation=0: .*=auc: needs a validation event"),
        ("{data.train: [[a], [b]]}", "", r"data.train=.*/space.yaml varies data.train"),
        ("{data.events: [1, 9]}", "", "data.events=9: .* has only 2 events"),
        ("", "data.validation=0", "auc: needs a validation event; set"),
        ("", "model.hidden=8", "model.hidden=8: .*/space.yaml varies model.hidden; remove it"),
        ("", "run.folder=here", "run.folder=here: bigtrk search sets run.folder; use --out"),
        ("", "training.best={metric: loss}", "bigtrk search sets training.best.metric; set 'me"),
    ],
)
def test_searches_that_no_trial_could_train_are_refused(
    plan: Plan, space: str, argument: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        plan(*filter(None, [argument]), space=f"metric: auc\nspace: {space}" if space else SPACE)


def test_a_folder_holds_one_search(plan: Plan, tmp_path: Path) -> None:
    plan("model.layers=2").open()
    before = (tmp_path / "out" / "search.json").read_bytes()
    plan("model.layers=2").open()
    assert (tmp_path / "out" / "search.json").read_bytes() == before
    for change, said in (
        ({"arguments": ("model.layers=3",)}, r"\(configuration model.layers was 2, now 3\)"),
        ({"space": SPACE.replace("16", "32")}, r"\(space model.hidden.high was 16, now 32\)"),
        ({"space": SPACE + "seed: 1\n"}, r"another search \(seed was 0, now 1\)"),
        ({"space": SPACE + "pruning: null\n"}, r"another search \(pruning "),
    ):
        options: dict[str, Any] = dict(change)
        arguments = options.pop("arguments", ("model.layers=2",))
        with pytest.raises(InputError, match=said):
            plan(*arguments, **options).open()
    (tmp_path / "out" / "search.json").rename(tmp_path / "out" / "thesis.tex")
    with pytest.raises(InputError, match=r"out: holds files.* search\.json; choose another --out"):
        plan().open()


def test_places_share_a_host_without_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)))
    monkeypatch.setattr(trainings, "visible_devices", lambda: ["4", "5", "6"])
    places = make_places(2, 1, None)
    assert [place.environment["CUDA_VISIBLE_DEVICES"] for place in places] == ["4", "5"]
    assert [(place.first, place.cores) for place in places] == [(0, 2), (2, 2)]
    with pytest.raises(InputError, match="once 4: this host has only 3 accelerators for 4 trials"):
        make_places(4, 1, None)
    monkeypatch.setattr(trainings, "visible_devices", list)
    with pytest.raises(InputError, match="--at-once 6: this host has only 5 cores"):
        make_places(6, 2, None)


def test_the_launcher_is_the_users_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    (alone,) = make_places(1, 1, None)
    assert alone.words[1:] == [str(TRAIN)]
    assert not {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_RANK"} & alone.environment.keys()
    assert "--nproc-per-node=3" in make_places(1, 3, None)[0].words
    (own, _) = make_places(2, 1, "env A=1 python")
    assert own.words == ["env", "A=1", "python", str(TRAIN)]
    assert own.environment["SLURM_STEP_NUM_TASKS"] == "4"
    for bad, said in (("", "no such program"), ("env 'python", "is no command"), ("no-such", "no")):
        with pytest.raises(InputError, match=said):
            make_places(1, 1, bad)
