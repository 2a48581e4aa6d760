"""EventGraphs as PyTorch Geometric's Data: both ways bit for bit, and refusals by name."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph, second_ways
from tests.hostile.reader import same
from tests.hostile.stored_files import a_graph


def random_data(seed: int) -> Data:
    """A Data of any size, some of it unknown, whose features are any finite bits of a float32."""
    rng = torch.Generator().manual_seed(seed)

    def number(below: int) -> int:
        return int(torch.randint(below, (), generator=rng))

    def any_floats(rows: int, columns: int) -> Tensor:
        bits = torch.randint(-(2**31), 2**31, (rows, columns), generator=rng).to(torch.int32)
        floats = bits.view(torch.float32)
        return torch.where(floats.isfinite(), floats, -0.0)

    nodes, node_columns, edge_columns = number(20), number(5), number(5)
    edges = number(60) if nodes else 0
    data = Data(
        x=any_floats(nodes, node_columns),
        edge_index=torch.randint(max(nodes, 1), (2, edges), generator=rng),
        name=f"event{seed:09}",
        node_feature_names=[f"node column {i}" for i in range(node_columns)],
        edge_feature_names=[f"edge column {i}" for i in range(edge_columns)],
    )
    if edge_columns:
        data.edge_attr = any_floats(edges, edge_columns)
    if number(2):
        data.y = torch.rand(edges, generator=rng) < 0.5
    if number(2):
        data.hit_id = torch.randint(-(2**62), 2**62, (nodes,), generator=rng)
        data.particle_id = torch.randint(2**62, (nodes,), generator=rng)
    return data


def test_random_data_both_ways() -> None:
    for seed in range(50):
        data = random_data(seed)
        assert same(EventGraph.from_pyg(data).to_pyg().to_dict(), data.to_dict())


def test_an_event_with_all_that_is_known() -> None:
    graph = a_graph()
    assert graph.particles is not None
    assert same(EventGraph.from_pyg(graph.to_pyg()), graph)
    data = graph.to_pyg()
    assert data.x is graph.node_features
    data.validate()
    assert (data.num_nodes, data.num_edges) == (graph.n_nodes, graph.n_edges)


def bare(**others: Any) -> Data:
    """Three nodes and four edges."""
    edges = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 2]])
    return Data(**{"x": torch.ones(3, 2), "edge_index": edges, **others})


def test_names_of_columns() -> None:
    graph = EventGraph.from_pyg(bare(edge_attr=torch.ones(4, 1)), "mine")
    assert (graph.name, graph.node_feature_names) == ("mine", ("x0", "x1"))
    assert graph.edge_feature_names == ("e0",)
    assert graph.y is None
    stored = bare(name="event", node_feature_names=["r", "z"])
    assert EventGraph.from_pyg(stored).node_feature_names == ("r", "z")
    given = EventGraph.from_pyg(stored, "mine", ("a", "b"))
    assert (given.name, given.node_feature_names) == ("mine", ("a", "b"))
    assert given.edge_features.shape == (4, 0)


BOTH_WAYS = torch.tensor([[0, 1, 2], [1, 0, 1]])


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"x": torch.ones(3, 1).double()}, "mine: x is torch.float64 and is rounded to float32"),
        ({"x": torch.ones(3, 1).bfloat16()}, "x is torch.bfloat16 and is rounded"),
        ({"pos": torch.zeros(3, 3)}, "mine: left out pos"),
        ({"edge_index": BOTH_WAYS}, "1 of 3 edges also exist in the other"),
        (
            {"edge_index": BOTH_WAYS, "y": torch.tensor([True, False, True])},
            "1 of 3 edges .* with another label; keep one direction",
        ),
        ({"x": torch.rand(3, 2), "node_feature_names": ["r", "z"]}, "r is at most .* as if it"),
        ({"x": torch.full((3, 1), 90.0), "node_feature_names": ["phi"]}, "phi is at most 90,"),
        ({"x": torch.full((3, 2), 90.0), "node_feature_names": ["r", "z"]}, "^$"),
    ],
)
def test_what_is_odd_is_said(
    attributes: dict[str, Any],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bigtrk.console._warned", set())
    graph = EventGraph.from_pyg(bare(**attributes), "mine")
    assert graph.node_features.dtype == torch.float32
    assert re.search(said, capsys.readouterr().err)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"x": None}, "has no x"),
    ({"x": torch.ones(3)}, r"x is Tensor torch.float32 \[3\]"),
    ({"x": [[1.0]]}, r"x must be a plain dense tensor \(got list\)"),
    ({"x": torch.tensor([[0, 1], [2, torch.nan], [0, 0]])}, r"x\[1, 1\] \(column x1\) is nan"),
    ({"x": torch.ones(3, 2).to_sparse()}, r"x must be a plain dense tensor \(got Tensor"),
    ({"x": torch.ones(3, 2, requires_grad=True)}, "x has gradients"),
    ({"edge_index": torch.ones(4, 2, dtype=torch.int64)}, r"'edge_index' has shape \(4, 2\)"),
    (
        {"edge_index": torch.tensor([[0, 1], [2, 3]])},
        "edge_index has values 0 to 3, but must be at least 0 and below 3",
    ),
    ({"edge_index": EdgeIndex([[0, 1], [1, 2]])}, "edge_index must be a plain dense tensor"),
    ({"edge_attr": torch.ones(3, 1)}, "edge_attr has 3 rows for 4 edges"),
    ({"y": torch.zeros(3)}, "y labels the 3 nodes, but bigtrk learns which edges"),
    ({"y": torch.zeros(4, 1)}, r"y is .*\[4, 1\], but must be \[4\]"),
    ({"y": torch.tensor([0.0, 0.5, 1.0, 0.0])}, "y, edge 1 is 0.5, not 0 or 1"),
    ({"node_feature_names": ["r"]}, "x has 2 columns, but 1 name; name each column once"),
    ({"node_feature_names": ["r", "r"]}, "column name 'r' is empty"),
    ({"node_feature_names": "rz"}, "node_feature_names is str; make it a list"),
    ({"hit_id": torch.zeros(4, dtype=torch.int64)}, "'hit_id' has shape"),
    ({"particles": {"pt": torch.ones(2)}}, "particles: .* missing"),
]


@pytest.mark.parametrize(("attributes", "complaint"), BAD)
def test_bad_attributes_are_named(attributes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=f"mine.*{complaint}"):
        EventGraph.from_pyg(bare(**attributes), "mine")


def test_what_is_not_one_graph() -> None:
    with pytest.raises(InputError, match=r"mine: is a DataBatch.*convert a batch by to_data_list"):
        EventGraph.from_pyg(Batch.from_data_list([bare(), bare()]), "mine")
    with pytest.raises(InputError, match="mine: is a HeteroData"):
        EventGraph.from_pyg(HeteroData(), "mine")
    with pytest.raises(InputError, match="the Data has no name"):
        EventGraph.from_pyg(bare())
    with pytest.raises(InputError, match="no edge_attr, but names of its columns are given"):
        EventGraph.from_pyg(bare(), "mine", edge_feature_names=["dr"])


def test_graphs_without_nodes_or_edges() -> None:
    none = replace(a_graph(), y=None, particles=None)
    empty = EventGraph.from_pyg(
        Data(x=torch.ones(0, 2), edge_index=torch.empty(2, 0, dtype=torch.int64)), "none"
    )
    assert (empty.n_nodes, empty.n_edges) == (0, 0)
    assert "y" not in none.to_pyg()
    assert "particles" not in none.to_pyg()


EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=30)


@given(edges=EDGES, node_id=st.permutations([3, 0, 11, 7, 8]))
def test_against_a_plain_loop(edges: list[tuple[int, int, bool]], node_id: list[int]) -> None:
    there = {(node_id[a], node_id[b], y) for a, b, y in edges}
    expected = [
        node_id[a] > node_id[b] and (node_id[b], node_id[a], y) in there for a, b, y in edges
    ]
    edge_index = torch.tensor([edge[:2] for edge in edges], dtype=torch.int64).reshape(-1, 2).T
    y = torch.tensor([y for *_, y in edges], dtype=torch.bool)
    assert second_ways(edge_index, torch.tensor(node_id), y).tolist() == expected
