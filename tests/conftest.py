"""Fixtures that every room's tests share."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

# Read when torch is first imported, here and in programs that tests start. Several processes test
# at once: with two threads each on two cores, those of three packages took 2.8 times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import HealthCheck, settings

from bigtrk.parallel.ranks import order_sums

# Until tests are collected: modules are no garbage, and a tenth of the time went into looking.
gc.disable()
# As programs do, before their first product: MKL reads its setting then.
order_sums()

# A busy machine is no failure.
settings.register_profile("bigtrk", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bigtrk")

# Triton reads this when it is imported, which DeepSpeed may do first.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


# They take half a minute and more each: begun last, they would leave one process alone with them.
LONGEST = (
    "test_readme.py",
    "test_make_demo.py",
    "test_plan.py",
    "test_stopping.py",
    "test_pipeline.py",
    "test_every_option.py",
    "test_pages.py",
    "test_series.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish() -> None:
    """Looks for garbage only among what tests make: each training in this process looks for it,
    for 0.35 s among the 600,000 objects of modules and of pytest.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def testdata() -> Path:
    """The folder that holds `data/` and `golden/`."""
    folder = os.environ.get("BIGTRK_TESTDATA", "")
    if not folder or not (Path(folder) / "data").is_dir():
        pytest.skip("BIGTRK_TESTDATA does not name a folder with data/ and golden/")
    return Path(folder)


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Restores the environment, to which a training in this process adds its place among ranks."""
    with patch.dict(os.environ):
        yield


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, in which it works."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], tuple[int, str, str]]:
    """Runs a program's main in this process: its exit status, stdout and stderr."""
    from tests.programs import run_here

    return lambda command: run_here(command, monkeypatch, capsys)


@pytest.fixture
def in_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves models in three sectors alone, of every kind of graph: a third of the time. Others are
    proved in all numbers of sectors.
    """
    from bigtrk.proof import prove

    monkeypatch.setattr(prove, "PARTS", (3,))
