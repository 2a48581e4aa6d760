"""Runs on parts of events: alike at every world size, by every engine, and where they resume."""

from pathlib import Path
from typing import Any

import pytest

from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.builders.build_folder import build_with
from bigtrk.graphs.builders.builder import TrueEdgeBuilder
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.pipeline.graphs import build_radius_graphs
from bigtrk.records.run_folder import read_run
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import random_graph
from tests.distributed.ranks import run_all
from tests.distributed.runs import ENGINES, fit_all, losses, write_in_sectors

MLP = {"name": "mlp", "hidden": 8}
# The data of each method, and sections of its configuration; the steps of an epoch; an engine.
METHODS: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "shadow": (  # of 50 and 70 nodes
        "graphs",
        {"sampling": {"method": "shadow", "depth": 2, "fanout": 3, "batch_size": 25, "bulk": 2}},
        5,
        "DDP",
    ),
    "sectors": (
        "sectors",
        {"sampling": {"method": "sectors"}, "training": {"events_per_step": 3}},
        3,
        "coalesced",
    ),
    "some false edges": (
        "graphs",
        {
            "model": MLP,
            "sampling": {"method": "wedges", "wedges": 3},
            "negatives": {"hard": 0.5, "easy": 0.5},
            "training": {"events_per_step": 3, "class_balance": "equal"},
        },
        2,
        "zero3",
    ),
    "embedding": (
        "true",
        {
            "model": {"name": "embedding", "hidden": 32, "mlp_layers": 2, "dimensions": 4},
            "sampling": {"method": "wedges", "wedges": 3},
            "pairs": {"hard_hits": 100, "random_pairs": 100},
            "training": {"events_per_step": 2},
        },
        3,
        "FSDP2",
    ),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three events in `graphs` and four `sectors`; three simulated ones, with their true edges."""
    folder = tmp_path_factory.mktemp("events")
    graphs = [random_graph(seed, 50 + 20 * seed, 300) for seed in range(3)]
    write_in_sectors(folder, graphs, 4)
    simulate_folder(folder / "events", range(3), 60, seed=1, detectors=None)
    build_with(folder / "events", folder / "true", TrueEdgeBuilder())
    return folder


def settings(
    data: Path, run: Path, method: str, engine: str = "DDP", **changes: Any
) -> Configuration:
    kind, sections, _, _ = METHODS[method]
    content: dict[str, Any] = {
        "data": {"train": [data / kind], "validation": 1},
        "model": {"hidden": 8, "layers": 2},
        "optimizer": {"lr": 0.01},
        "engine": ENGINES[engine],
        "run": {"folder": run},
        **sections,
    }
    if method == "embedding":
        content["data"]["node_features"] = ["r", "cos_phi", "sin_phi", "z", "eta"]
    content["training"] = {"epochs": 2, **sections.get("training", {}), **changes}
    return Configuration.model_validate(content)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Runs of each method on 1 and 2 ranks, on 3 by its engine; and some of which one step is on
    two ranks, another on one and the others on three.
    """
    folder = tmp_path_factory.mktemp("runs")

    def run(name: str, method: str, *resume: Path, **changes: Any) -> Any:
        return fit_all, (settings(data, folder / name / method, method, **changes), *resume)

    def on(method: str, **changes: Any) -> Any:
        return run("halted", method, folder / "halted" / method, **changes)

    def each(name: str, **changes: Any) -> dict[str, Any]:
        return {f"{name} {method}": run(name, method, **changes) for method in METHODS}

    run_all(2, {**each("2"), **each("halted", minutes=1e-6)})
    run_all(1, {**each("1"), **{f"on {method}": on(method, minutes=1e-6) for method in METHODS}})
    by_engine = {m: run("3", m, engine=engine) for m, (*_, engine) in METHODS.items()}
    run_all(3, {**by_engine, **{f"on {method}": on(method) for method in METHODS}})
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_the_same_at_every_world_size(runs: Path, method: str) -> None:
    alone = losses(runs / "1" / method)
    assert len(alone) == 2 * METHODS[method][2]
    assert losses(runs / "2" / method) == pytest.approx(alone, rel=1e-5)
    assert losses(runs / "3" / method) == pytest.approx(alone, rel=1e-4)
    if method != "embedding":
        scores = [read_run(runs / name / method).epochs[-1].validation for name in ("1", "3")]
        assert scores[0]
        assert scores[1]
        assert scores[1].loss == pytest.approx(scores[0].loss, rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_goes_on_in_mid_epoch_on_other_ranks(runs: Path, method: str) -> None:
    run, whole = runs / "halted" / method, runs / "2" / method
    assert losses(run) == pytest.approx(losses(whole), rel=1e-5)
    assert len(losses(run)) == len(losses(whole))
    for one, other in zip(read_run(run).epochs, read_run(whole).epochs, strict=True):
        assert (one.steps, one.events, one.edges) == (other.steps, other.events, other.edges)
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-5)


def test_the_radius_of_an_embedding_s_validation_keeps_the_edges(
    tmp_path: Path, data: Path, runs: Path
) -> None:
    alone, others = (read_run(runs / n / "embedding").epochs[-1].embedding for n in ("1", "3"))
    assert alone
    assert others
    assert [*alone.at] == ["95", "98", "99", "99.5"]
    for name, graph in alone.at.items():
        assert others.at[name].radius == pytest.approx(graph.radius, rel=1e-3)
        assert 0 < graph.efficiency <= 1
    out = tmp_path / "graphs"
    build_radius_graphs(data / "events", out, runs / "1" / "embedding", None, 0.99)
    held_back = GraphFolder(out).record("event000000002")
    assert held_back["radius"] == alone.at["99"].radius
    assert held_back["edge_efficiency"] == pytest.approx(alone.at["99"].efficiency, abs=1e-9)
    # The recorded number counts pairs of one module, too.
    assert 0.5 * alone.at["99"].edges < held_back["edges"] <= alone.at["99"].edges
