"""Runs with features and a loss of users' own are alike on every number of ranks and every engine;
they are resumed and evaluated with the scales that they measured.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bigtrk.graphs.event_graph import EventGraph
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import read_run
from bigtrk.training.data.event_source import Events, split_validation
from bigtrk.training.data.features import measure_scales
from bigtrk.training.settings import Configuration
from bigtrk.user_code import allow_code
from tests.distributed.graphs import random_graph, source
from tests.distributed.ranks import message, run_all, run_ranks, said
from tests.distributed.runs import ENGINES, fit, write_events
from tests.training.user_functions import HERE

PT_MIN = 1.0
CHARGE = 5000.0


def graph(seed: int, n_nodes: int, n_edges: int) -> EventGraph:
    """A random graph with a column of nodes, and one of edges, that have no names of ours."""
    made = random_graph(seed, n_nodes, n_edges)
    generator = torch.Generator().manual_seed(seed)
    charge = CHARGE + torch.randn(n_nodes, 1, generator=generator)
    weight = torch.rand(made.n_edges, 1, generator=generator)
    return replace(
        made,
        node_feature_names=(*made.node_feature_names, "charge"),
        node_features=torch.cat([made.node_features, charge], dim=1),
        edge_feature_names=(*made.edge_feature_names, "charge"),
        edge_features=torch.cat([made.edge_features, weight], dim=1),
    )


NODES = ["r", "cos_phi", "charge", f"{HERE}:distance", f"{HERE}:layer"]
EDGES = ["charge", "dz", f"{HERE}:length"]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    write_events(folder, 5, graph)
    return folder


def settings(events: Path, run: Path, epochs: int, **engine: Any) -> Configuration:
    """Trains on four of five events, three of which are cut in two; the last is held back."""
    data = {"train": [events / "graphs", events / "sectors"], "validation": 1}
    return Configuration.model_validate(
        {
            "data": {**data, "node_features": NODES, "edge_features": EDGES},
            "model": {"hidden": 8, "layers": 2},
            "target": {"pt_min": PT_MIN},
            "training": {
                "epochs": epochs,
                "events_per_step": 4,
                "routing": "stored",
                "loss": f"{HERE}:squared",
            },
            "optimizer": {"lr": 0.01},
            "engine": engine,
            "run": {"folder": run},
        }
    )


def found(configuration: Configuration) -> Events:
    return Events(*split_validation(configuration.data.train, 1))


def fit_own(ranks: Ranks, configuration: Configuration) -> None:
    allow_code([HERE])
    fit(configuration, ranks, found(configuration), None)


def expected_scales() -> dict[str, dict[str, tuple[float, float]]]:
    """Mean and deviation in float64, of all training events in one array."""
    graphs = [graph(seed, 40 + 5 * seed, 240) for seed in range(4)]
    nodes = np.concatenate([one.node_features.double().numpy() for one in graphs])
    edges = np.concatenate([one.edge_features.double().numpy() for one in graphs])
    z = [one.node_features[:, 2].double().numpy()[one.edge_index.numpy()] for one in graphs]
    middle = np.abs(np.concatenate(z, axis=1).sum(axis=0)) / 2
    columns = {
        "nodes": {"charge": nodes[:, 4], f"{HERE}:distance": np.hypot(nodes[:, 0], nodes[:, 2])},
        "edges": {
            "charge": edges[:, 6],
            f"{HERE}:length": np.hypot(edges[:, 0], edges[:, 2]) - 0.1 * middle,
        },
    }
    return {
        kind: {name: (float(x.mean()), float(x.std())) for name, x in some.items()}
        for kind, some in columns.items()
    }


def test_runs_are_the_same_at_every_number_of_ranks_and_by_every_engine(
    tmp_path: Path, events: Path
) -> None:
    found_losses, measured = [], []
    for world_size, engine in ((1, "DDP"), (3, "zero3")):
        folder = tmp_path / engine
        run_ranks(world_size, fit_own, settings(events, folder, 2, **ENGINES[engine]))
        run = read_run(folder)
        validated = [one.validation.loss for one in run.epochs if one.validation]
        assert len(validated) == 2
        found_losses.append([*(step.loss for step in run.steps), *validated])
        measured.append(run.record.measured.model_dump(mode="json"))
        described = json.loads((folder / "config.json").read_text())
        assert described["measured"] == measured[-1]
        assert described["scales"] == {"r": 300.0, "cos_phi": 0.7, "dz": 300.0}
    assert found_losses[1] == pytest.approx(found_losses[0], rel=1e-5)
    assert measured[1] == measured[0], "to the last bit"
    assert measured[0]["nodes"].pop(f"{HERE}:layer") == [7.25, 1.0], "a constant"
    for kind, scales in expected_scales().items():
        assert measured[0][kind].keys() == scales.keys()
        for name, scale in scales.items():
            assert measured[0][kind][name] == pytest.approx(scale, rel=1e-6), name


def measured_of(ranks: Ranks, cuts: list[int]) -> dict[str, Any]:
    allow_code([HERE])
    data = settings(Path(), Path(), 1).data
    data = data.model_copy(update={"node_features": NODES[3:], "edge_features": EDGES[2:]})
    parts = [source(seed, parts, n_nodes=2000) for seed, parts in enumerate(cuts)]
    return measure_scales(data, parts, ranks).model_dump()


def test_scales_depend_neither_on_the_cut_nor_on_the_ranks() -> None:
    alone = {"whole": (measured_of, ([1, 1, 1],)), "cut": (measured_of, ([4, 2, 8],))}
    [whole], [cut] = run_all(1, alone).values()
    assert cut == whole
    for result in run_ranks(3, measured_of, [2, 1, 3]):
        assert result == whole


def bad_columns(ranks: Ranks, folder: Path, name: str) -> str | None:
    allow_code([HERE])
    data = settings(folder, folder / "run", 1).data
    data = data.model_copy(update={"node_features": [name], "train": [folder / "graphs"]})
    configuration = settings(folder, folder / "run", 1).model_copy(update={"data": data})
    return message(lambda: fit(configuration, ranks, found(configuration), None))


def spoilt(seed: int, n_nodes: int, n_edges: int) -> EventGraph:
    made = graph(seed, n_nodes, n_edges)
    if seed == 1:
        made.node_features[17, 4] = torch.inf
    return made


def test_all_ranks_tell_a_bad_column_before_training(tmp_path: Path) -> None:
    write_events(tmp_path, 4, spoilt)
    told = {
        "charge": "event000000001: node 17 has charge = inf; build the graph again",
        f"{HERE}:centred": "depends on other rows",
    }
    said = run_all(2, {name: (bad_columns, (tmp_path, name)) for name in told})
    for name, words in told.items():
        first, second = said[name]
        assert words in first
        assert first == second
    assert not (tmp_path / "run").exists()


def fail_alone(ranks: Ranks, events: Path, folder: Path) -> str:
    made = settings(events, folder, 1).model_dump(mode="json")
    made["training"]["loss"] = f"{HERE}:failing_alone"
    return str(said(lambda: fit_own(ranks, Configuration.model_validate(made))))


def test_a_rank_says_that_its_loss_failed(tmp_path: Path, events: Path) -> None:
    first, second = run_ranks(2, fail_alone, events, tmp_path / "run", fresh=True)
    assert first == "the other rank is gone"
    words = f"rank 1: training.loss={HERE}:failing_alone: fails (RuntimeError: no loss here); "
    assert second.startswith(words)
