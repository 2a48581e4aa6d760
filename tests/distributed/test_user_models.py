"""Models of users' own, from a folder beside their data, train as one rank does on every engine."""

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from bigtrk.models.settings import UserModelConfig
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import read_run_record
from bigtrk.training import settings as settings_module
from bigtrk.training.settings import Configuration
from bigtrk.user_code import Origin, allow_code
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, losses, settings, train, write_events
from tests.distributed.started import Start, play
from tests.models import user_models
from tests.programs import free_port

FORMS = ("Simple", "Layered")
# ZeRO-3 and FSDP2 ask the most of a model.
CASES = [("Simple", "FSDP2"), ("Simple", "coalesced"), ("Layered", "zero1"), ("Layered", "zero3")]
ROUNDING = 1e-5  # of losses: sums over ranks have another order


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the checkout, with events, some of them cut in two, and a module."""
    folder = tmp_path_factory.mktemp("home")
    write_events(folder)
    source = Path(user_models.__file__).read_text()
    (folder / "own_models.py").write_text(source)
    return folder


def configuration(run: Path, form: str, engine: str) -> Configuration:
    made = settings(Path(), run, 1, ENGINES[engine])
    model = UserModelConfig(name=f"own_models:{form}", options={"hidden": 6, "layers": 2})
    training = made.training.model_copy(update={"pt_weight": 0.0})
    return made.model_copy(update={"model": model, "training": training})


def train_cases(ranks: Ranks, home: Path, runs: Path, cases: list[tuple[str, str]]) -> None:
    os.chdir(home)
    allow_code(["own_models"])
    for form, engine in cases:
        train(ranks, configuration(runs / f"{form} {engine}", form, engine))


@pytest.fixture(scope="module")
def runs(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of CASES on three ranks, and of DDP on one."""
    folder = tmp_path_factory.mktemp("runs")
    run_ranks(1, train_cases, home, folder, [(form, "DDP") for form in FORMS])
    run_ranks(3, train_cases, home, folder, CASES)
    return folder


@pytest.mark.parametrize(("form", "engine"), CASES)
def test_every_engine_trains_as_one_rank(runs: Path, form: str, engine: str) -> None:
    alone = losses(runs / f"{form} DDP")
    assert len(alone) == 2
    assert losses(runs / f"{form} {engine}") == pytest.approx(alone, rel=ROUNDING)
    record = read_run_record(runs / f"{form} {engine}")
    assert record.world_size == 3
    assert record.code[f"own_models:{form}"].source.endswith("own_models.py")


def have_another_version() -> None:
    vars(settings_module)["code_origin"] = lambda *_: Origin("elsewhere.py", "1")


def have_none() -> None:
    sys.modules[user_models.__name__] = cast(ModuleType, None)  # so that it cannot be imported


def test_ranks_with_other_code_are_told_apart_before_they_train(home: Path, tmp_path: Path) -> None:
    name = f"{user_models.__name__}:Simple"
    named = (f"model.name={name}", f"data.train=[{home}/graphs]")
    befores = {"other": have_another_version, "none": have_none}
    ends = play(
        {
            case: (free_port(), [Start(0, 2, named), Start(1, 2, named, before=before)])
            for case, before in befores.items()
        },
        tmp_path,
    )
    other, none = ("\n".join(ends[case][0].said) for case in befores)
    assert f"rank 1 has another version of {name} than rank 0: 1 instead of" in other
    assert f"rank 1: model.name={name}: importing {user_models.__name__} fails (Module" in none
