"""An embedding is trained by every engine, alike on every number of ranks, and makes graphs."""

from pathlib import Path

import pytest

from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.builders.build_folder import build_with
from bigtrk.graphs.builders.builder import TrueEdgeBuilder
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.pipeline.graphs import build_radius_graphs
from bigtrk.reports import read_run
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_all, run_ranks
from tests.distributed.runs import fit_all, losses

ENGINES = {
    "ddp": {"name": "ddp"},
    "fsdp2": {"name": "fsdp2"},
    "zero1": {"name": "deepspeed", "ds_config": "zero1"},
    "zero3": {"name": "deepspeed", "ds_config": "zero3"},
}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    simulate_folder(folder / "events", range(3), 60, seed=1, detectors=None)
    build_with(folder / "events", folder / "true", TrueEdgeBuilder())
    return folder


def settings(events: Path, run: Path, engine: str = "ddp", epochs: int = 2) -> Configuration:
    return Configuration.model_validate(
        {
            "data": {
                "train": [events / "true"],
                "validation": 1,
                "node_features": ["r", "cos_phi", "sin_phi", "z", "eta"],
            },
            "model": {"name": "embedding", "hidden": 32, "mlp_layers": 2, "dimensions": 4},
            "sampling": {"method": "wedges", "wedges": 3},
            "pairs": {"hard_hits": 100, "random_pairs": 100},
            "optimizer": {"lr": 0.01},
            "engine": ENGINES[engine],
            "training": {"epochs": epochs, "events_per_step": 2},
            "run": {"folder": run},
        }
    )


# Slow: zero3 does more than zero1 does.
OTHER_ENGINES = ["fsdp2", pytest.param("zero1", marks=pytest.mark.slow), "zero3"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, events: Path) -> Path:
    """Runs on 1, 2 and 3 ranks; a long one on one; on two those of engines; and one that goes on on
    three.
    """
    folder = tmp_path_factory.mktemp("runs")
    halted = settings(events, folder / "halted")
    halted = halted.model_copy(
        update={"training": halted.training.model_copy(update={"minutes": 1e-6})}
    )
    whole = {n: (fit_all, (settings(events, folder / str(n)),)) for n in (1, 2, 3)}
    engines = {
        engine: (fit_all, (settings(events, folder / engine, engine),))
        for engine in ("fsdp2", "zero3")
    }
    long = fit_all, (settings(events, folder / "long", epochs=20),)
    run_all(1, {"whole": whole[1], "long": long})
    run_all(2, {"whole": whole[2], "halted": (fit_all, (halted,)), **engines})
    on = fit_all, (settings(events, folder / "halted"), folder / "halted")
    run_all(3, {"whole": whole[3], "on": on})
    return folder


def test_it_trains_alike_on_every_number_of_ranks(runs: Path) -> None:
    alone = losses(runs / "1")
    assert len(alone) == 2 * 3, "2 events in 3 wedges each, 2 to a step"
    for world_size in (2, 3):
        assert losses(runs / str(world_size)) == pytest.approx(alone, rel=1e-5)
    found = [read_run(runs / str(n)).epochs[-1].embedding for n in (1, 3)]
    assert found[0]
    assert found[1]
    assert [*found[0].at] == ["95", "98", "99", "99.5"]
    for name, graph in found[0].at.items():
        assert found[1].at[name].radius == pytest.approx(graph.radius, rel=1e-4)
        assert 0 < graph.efficiency <= 1


@pytest.mark.parametrize("engine", OTHER_ENGINES)
def test_every_engine_trains_it_alike(events: Path, runs: Path, engine: str) -> None:
    if not (runs / engine).exists():
        run_ranks(2, fit_all, settings(events, runs / engine, engine))
    assert losses(runs / engine) == pytest.approx(losses(runs / "2"), rel=1e-4)


def test_it_goes_on_in_mid_epoch_on_other_ranks(runs: Path) -> None:
    assert losses(runs / "halted") == pytest.approx(losses(runs / "2"), rel=1e-5)


def test_the_radius_of_its_validation_keeps_the_edges(
    tmp_path: Path, events: Path, runs: Path
) -> None:
    run = read_run(runs / "long")
    embedding = run.epochs[-1].embedding
    assert embedding
    assert embedding.loss is not None
    first = run.epochs[0].embedding
    assert first
    assert first.at["99"].edges > 1.5 * embedding.at["99"].edges, "it has learnt"
    out = tmp_path / "graphs"
    build_radius_graphs(events / "events", out, runs / "long", None, 0.99)
    held_back = GraphFolder(out).record("event000000002")
    assert held_back["radius"] == embedding.at["99"].radius
    assert held_back["edge_efficiency"] == pytest.approx(embedding.at["99"].efficiency, abs=1e-9)
    # The recorded number counts pairs of one module, too.
    assert held_back["edges"] <= embedding.at["99"].edges
    assert held_back["edges"] > 0.8 * embedding.at["99"].edges
