"""`bigtrk study`: what it needs, and a whole one in small."""

import json
from pathlib import Path

import pytest

from bigtrk.errors import InputError
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.studies.sampling_study import METHODS, plan_study
from bigtrk.train import DEFAULT
from tests.distributed.graphs import random_graph
from tests.distributed.runs import write_in_sectors

PARTS = 2


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Path]:
    """Three events as graphs and in sectors."""
    graphs = [random_graph(seed, 60, 300) for seed in range(3)]
    write_in_sectors(tmp_path, graphs, PARTS)
    return tmp_path / "graphs", tmp_path / "sectors"


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("data.validation=0", "compares validation; hold back events"),
        ("sampling.method=shadow", "bigtrk study sets it; leave it out"),
        ("training.epochs=3", "bigtrk study sets it; leave it out"),
        ("model.hiden=3", "did you mean 'model.hidden'"),
    ],
)
def test_bad_settings(data: tuple[Path, Path], tmp_path: Path, extra: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_study([*map(str, data), extra], DEFAULT, tmp_path / "out", 1, 1)


def test_it_needs_graphs_and_their_sectors(data: tuple[Path, Path], tmp_path: Path) -> None:
    graphs, sectors = map(str, data)
    for folders in ([graphs], [graphs, graphs], [graphs, sectors, sectors]):
        with pytest.raises(InputError, match="needs two data folders"):
            plan_study(folders, DEFAULT, tmp_path / "out", 1, 1)
    write_manifest(data[1], "sectors", {}, ["event000000001"])
    with pytest.raises(InputError, match="hold different events"):
        plan_study([graphs, sectors], DEFAULT, tmp_path / "out", 1, 1)


def test_no_time_is_no_study(data: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"training\.minutes.*greater than 0"):
        plan_study([*map(str, data)], DEFAULT, tmp_path / "out", 0, 1)


@pytest.mark.slow
def test_a_study_trains_every_method_once(data: tuple[Path, Path], tmp_path: Path) -> None:
    given = [*map(str, data), "model.hidden=8", "model.layers=2", "sampling.batch_size=20"]
    out = tmp_path / "study"
    study = plan_study(given, DEFAULT, out, minutes=0.02, ranks=1)
    study.run()
    found = json.loads((out / "study.json").read_text())
    assert list(found["methods"]) == [name for name, _, _ in METHODS]
    assert all(method["curve"] for method in found["methods"].values())
    assert found["methods"]["ShaDow"]["work"] > 2
    assert found["methods"]["full graph"]["work"] == 1
    weights = {path: path.stat().st_mtime_ns for path in out.glob("*/model.safetensors")}
    study.run()
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    other = plan_study([*given, "optimizer.lr=0.1"], DEFAULT, out, minutes=0.02, ranks=1)
    with pytest.raises(InputError, match="is of other settings or minutes; choose another --out"):
        other.run()
