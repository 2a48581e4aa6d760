"""Models of users' own, from a folder beside their data, train as one rank does on every engine."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from bigtrk.models.settings import UserModelConfig
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import read_run_record
from bigtrk.training.settings import Configuration
from bigtrk.user_code import allow_code
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, losses, settings, steps, train, write_events
from tests.models import user_models
from tests.programs import CHECKOUT, run_shell

FORMS = ("Simple", "Layered")
CASES = [(form, engine) for form in FORMS for engine in ENGINES]
# ZeRO-3 and FSDP2 ask the most of a model; the others run where time is.
QUICK = [(form, engine) for form in FORMS for engine in ("DDP", "FSDP2", "zero3")]
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
def trained(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Gives the folder of the runs of `cases`, which are trained when it is first asked for."""

    @cache
    def runs(world_size: int, cases: tuple[tuple[str, str], ...]) -> Path:
        folder = tmp_path_factory.mktemp("runs")
        run_ranks(world_size, train_cases, home, folder, list(cases))
        return folder

    return runs


@pytest.mark.parametrize(
    ("world_size", "form", "engine"),
    [
        pytest.param(n, *case, marks=() if case in QUICK and n == 3 else pytest.mark.slow)
        for n in (2, 3)
        for case in CASES
    ],
)
def test_every_engine_trains_as_one_rank(
    trained: Callable[..., Path], world_size: int, form: str, engine: str
) -> None:
    quick = world_size == 3 and (form, engine) in QUICK
    runs = trained(world_size, tuple(QUICK if quick else CASES))
    alone = losses(trained(1, tuple((form, "DDP") for form in FORMS)) / f"{form} DDP")
    assert len(alone) == 2
    assert losses(runs / f"{form} {engine}") == pytest.approx(alone, rel=ROUNDING)
    record = read_run_record(runs / f"{form} {engine}")
    assert record.world_size == world_size
    assert record.code[f"own_models:{form}"].source.endswith("own_models.py")


def whole_and_resumed(ranks: Ranks, home: Path, runs: Path) -> None:
    """Trains three epochs in one go, and resumed within the second one."""
    os.chdir(home)
    allow_code(["own_models"])
    for form in FORMS:
        one = configuration(runs / form, form, "DDP")
        train(ranks, one)
        train(ranks, one, runs / form, "training.minutes=1e-9")
        train(ranks, one, runs / form, "training.minutes=null")
        three = one.training.model_copy(update={"epochs": 3})
        whole = one.run.model_copy(update={"folder": runs / f"{form} whole"})
        train(ranks, one.model_copy(update={"training": three, "run": whole}))
    dist.barrier()


def test_resumed_runs_are_bit_for_bit_the_whole_one(home: Path, tmp_path: Path) -> None:
    run_ranks(3, whole_and_resumed, home, tmp_path)
    for form in FORMS:
        whole, resumed = tmp_path / f"{form} whole", tmp_path / form
        assert len(steps(whole)) == 6
        assert steps(resumed) == steps(whole)
        weights, others = (load_file(run / "model.safetensors") for run in (whole, resumed))
        assert all(torch.equal(weights[name], others[name]) for name in weights)


def train_parts(ranks: Ranks, home: Path, runs: Path) -> None:
    os.chdir(home)
    allow_code(["own_models"])
    for form in FORMS:
        for method, data in (("shadow", "graphs"), ("wedges", "graphs"), ("sectors", "sectors")):
            made = configuration(runs / f"{form} {method}", form, "DDP")
            sampling = made.sampling.model_copy(update={"method": method, "depth": 2})
            one = made.training.model_copy(update={"events_per_step": 1})
            of = made.data.model_copy(update={"train": [Path(data)]})
            train(
                ranks,
                made.model_copy(update={"sampling": sampling, "training": one, "data": of}),
            )


def test_they_train_on_parts_of_events(home: Path, tmp_path: Path) -> None:
    run_ranks(2, train_parts, home, tmp_path)
    for run in tmp_path.iterdir():
        assert (run / "model.safetensors").exists(), run.name
        assert max(losses(run)) > 0, run.name  # some wedges have no edges
    assert len([*tmp_path.iterdir()]) == 6


LAUNCHERS = {
    "torchrun": "torchrun --standalone --nproc-per-node 2",
    "deepspeed": "deepspeed --num_gpus 2",
}


@pytest.mark.parametrize(
    "launcher", ["torchrun", pytest.param("deepspeed", marks=pytest.mark.slow)]
)
def test_each_rank_of_a_launcher_imports_from_the_working_folder(
    home: Path, tmp_path: Path, launcher: str
) -> None:
    start = f"OMP_NUM_THREADS=1 DS_ACCELERATOR=cpu {LAUNCHERS[launcher]} {CHECKOUT}/bigtrk/train.py"
    model = "model.name=own_models:Layered model.options.hidden=6 training.epochs=1"
    data = "data.train=[graphs,sectors] training.events_per_step=2 training.routing=stored"
    run_shell(f"{start} {data} {model} run.folder={tmp_path}/run", home)
    record = read_run_record(tmp_path / "run")
    assert (record.launcher, record.world_size) == (launcher, 2)
    assert record.code["own_models:Layered"].source == str(home / "own_models.py")
