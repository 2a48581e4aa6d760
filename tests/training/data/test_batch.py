"""Tests what a batch holds of the truth, and what it refuses: event and fault are named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.parallel.routing import Assignment
from bigtrk.parallel.world import make_world
from bigtrk.training.data.batch import Batch, BatchMaker
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import EDGE_FEATURES, NODE_FEATURES, MemorySource, random_graph
from tests.distributed.parity import known_log_pt
from tests.distributed.ranks import ALONE

Spoil = Callable[[EventGraph], object]


def make(graph: EventGraph, sectors: int = 1, **sections: Any) -> Batch:
    """The whole graph, or the first of its sectors, which exchange nothing."""
    data = {"node_features": NODE_FEATURES, "edge_features": EDGE_FEATURES, "sectors": "naive"}
    configuration = Configuration.model_validate({"data": data, **sections})
    source = MemorySource(graph.name, sectors, graph, torch.arange(graph.n_nodes) % sectors)
    first = Assignment(0, (0,), parts=sectors, first_rank=0)
    maker = BatchMaker(configuration, make_world(ALONE))
    return maker.make(first, [source]).batches[0]  # type: ignore[list-item]


def spoilt(spoil: Spoil) -> EventGraph:
    graph = random_graph(7, 40, 200)
    spoil(graph)
    return graph


CASES: dict[str, tuple[Spoil, str]] = {
    "nan of a node": (
        lambda g: g.node_features[5, 1].fill_(float("nan")),
        f"node 5 has {NODE_FEATURES[1]} = nan; build the graph again",
    ),
    "inf of an edge": (
        lambda g: g.edge_features[9, 2].fill_(float("-inf")),
        f"edge 9 has {EDGE_FEATURES[2]} = -inf; build the graph again",
    ),
    "before the first node": (
        lambda g: g.edge_index[0, 3].fill_(-1),
        "an edge ends at node -1, outside of the 40 nodes of its graph; build its graph again",
    ),
    "behind the last node": (
        lambda g: g.edge_index[1, 3].fill_(40),
        "an edge ends at node 40, outside of the 40 nodes of its graph; build its graph again",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), CASES.values(), ids=CASES)
def test_a_bad_graph_is_named(spoil: Spoil, message: str) -> None:
    graph = spoilt(spoil)
    with pytest.raises(InputError, match=f"{graph.name}: {message}"):
        make(graph)


def test_a_feature_that_is_not_chosen_may_be_anything() -> None:
    graph = random_graph(7, 40, 200)
    more = torch.full((40, 1), float("nan"))
    nodes = torch.cat([more, graph.node_features], dim=1)
    names = ("cluster_u", *graph.node_feature_names)
    assert make(replace(graph, node_features=nodes, node_feature_names=names)).x.isfinite().all()


def test_edges_weigh_as_their_particle_is_in_the_target() -> None:
    graph = random_graph(7, 40, 200)
    batch = make(graph, target={"pt_min": 1.0, "weight": 3.0, "other_weight": -0.5})
    log_pt = known_log_pt(graph)
    assert graph.y is not None
    expected = [
        (3.0 if log_pt.get(edge, -1) >= 0 else -0.5) if true else 1.0
        for edge, true in enumerate(graph.y.tolist())
    ]
    assert set(expected) == {3.0, -0.5, 1.0}
    assert batch.weights.tolist() == [expected[edge] for edge in batch.sector.edge_id]
    assert batch.truth.weight.tolist() == batch.weights.abs().tolist()
    assert torch.equal(batch.truth.label == 1, batch.weights == 3)
    assert torch.equal(batch.is_target, batch.weights == 3)


@pytest.mark.parametrize("sectors", [1, 2])
def test_known_pt_is_that_of_computed_edges(sectors: int) -> None:
    graph = random_graph(7, 40, 200)
    assert make(graph, sectors).pt is None
    truth = make(graph, sectors, training={"pt_weight": 0.1}, target={"pt_min": 1.0}).pt
    assert truth is not None
    inside = (graph.edge_index % sectors == 0).all(dim=0)
    expected = {edge: log_pt for edge, log_pt in known_log_pt(graph).items() if inside[edge]}
    edges = make(graph, sectors).sector.edge_id[truth.known].tolist()
    assert truth.count == len(expected) > 5
    assert dict(zip(edges, truth.log_pt[truth.known].tolist(), strict=True)) == expected
    assert not truth.log_pt[~truth.known].any()
