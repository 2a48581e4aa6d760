"""What a batch refuses: the event and what is wrong with it are named."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.training.batch import Batch, BatchMaker
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import EDGE_FEATURES, NODE_FEATURES, MemorySource, random_graph

Spoil = Callable[[EventGraph], object]


def make(graph: EventGraph) -> Batch:
    configuration = Configuration.model_validate(
        {"data": {"node_features": NODE_FEATURES, "edge_features": EDGE_FEATURES}}
    )
    source = MemorySource(graph.name, 1, graph, torch.zeros(graph.n_nodes))
    return BatchMaker(configuration, torch.device("cpu")).whole(0, [source])  # type: ignore[list-item]


def spoilt(spoil: Spoil) -> EventGraph:
    graph = random_graph(7, 40, 200)
    spoil(graph)
    return graph


CASES: dict[str, tuple[Spoil, str]] = {
    "nan of a node": (
        lambda g: g.node_features[5, 1].fill_(float("nan")),
        f"node 5 has {NODE_FEATURES[1]} nan; build the graph again",
    ),
    "inf of an edge": (
        lambda g: g.edge_features[9, 2].fill_(float("-inf")),
        f"edge 9 has {EDGE_FEATURES[2]} -inf; build the graph again",
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
