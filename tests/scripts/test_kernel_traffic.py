"""Reads that go to memory against a cache that is followed read by read; the published counts."""

import math
from collections import OrderedDict
from dataclasses import asdict

import numpy as np
import pytest
import torch

from bigtrk.cost.data_sheets import WHOLE_SHEETS
from bigtrk.disk.files import read_json
from bigtrk.models.edges.triton_passes import incidence_of
from bigtrk.models.edges.work import Reads
from scripts.bench.kernel_traffic import beside, rows_of, summary, worst_ratios
from scripts.bench.memory_reads import Graph, reads, shape_of
from scripts.docs.tables import gpu_tables
from scripts.results import CHECKOUT, RESULTS

RANDOM = np.random.default_rng(3)


def graph(n_nodes: int = 40, n_edges: int = 900) -> Graph:
    """A random graph, by destination and then source."""
    edges = RANDOM.integers(n_nodes, size=(2, n_edges))
    return Graph(edges[:, np.lexsort((edges[0], edges[1]))], n_nodes)


def misses(rows: list[int], capacity: int) -> int:
    """Reads rows of one byte through a cache that drops what was used longest ago."""
    cache: OrderedDict[int, None] = OrderedDict()
    lost = 0
    for row in rows:
        lost += row not in cache
        cache[row] = cache.pop(row, None)
        if len(cache) > capacity:
            cache.popitem(last=False)
    return lost


@pytest.mark.parametrize("capacity", [1, 5, 20, 50])
def test_no_read_is_spared_that_a_cache_would_make(capacity: int) -> None:
    rows = RANDOM.integers(30, size=2000)
    found = reads(rows, np.arange(len(rows)), capacity)
    assert found.distinct == len(set(rows.tolist()))
    assert found.moved >= misses(rows.tolist(), capacity)
    in_turn = np.tile(np.arange(30), 5)  # where nothing is read twice in a row, both agree
    exact = reads(in_turn, np.arange(len(in_turn)), capacity)
    assert exact.moved == misses(in_turn.tolist(), capacity)


def test_rows_of_one_time_are_read_once() -> None:
    rows, time = np.array([7, 7, 3, 7]), np.array([0, 0, 0, 9])
    assert reads(rows, time, window=0) == Reads(2, 3)
    assert reads(rows, time, window=9) == Reads(2, 2)


@pytest.mark.parametrize(
    ("dtype", "height", "block"), [(torch.float32, 32, 128), (torch.bfloat16, 64, 128)], ids=str
)
def test_blocks_of_the_schedule_read_their_own_rows(
    dtype: torch.dtype, height: int, block: int
) -> None:
    made, shape = graph(), shape_of(64, dtype)
    forward = made.forward(shape, l2_bytes=0)
    tiles = [made.edge_index[:, i : i + height] for i in range(0, made.n_edges, height)]
    for end, found in enumerate(forward):
        assert found.moved == sum(len(np.unique(tile[end])) for tile in tiles)
    blocks = [made.edge_index[:, i : i + block] for i in range(0, made.n_edges, block)]
    backward = made.backward(shape, at_work=1, l2_bytes=0)
    for end, found in enumerate(backward):
        assert found.moved == sum(len(np.unique(tile[end])) for tile in blocks)
    # Programs at work together read at one time.
    at_once = made.backward(shape, at_work=1000, l2_bytes=0)
    assert [found.moved for found in at_once] == [found.distinct for found in backward]


def test_edges_are_read_for_both_of_their_sums() -> None:
    made, shape = graph(), shape_of(64, torch.bfloat16)
    assert made.sums(shape, l2_bytes=0) == Reads(made.n_edges, 2 * made.n_edges)
    assert made.sums(shape, math.inf) == Reads(made.n_edges, made.n_edges)
    read = made._in_turns().tolist()
    for turn in incidence_of(torch.from_numpy(made.edge_index), made.n_nodes).turns.tolist():
        node, end = divmod(turn, 2)
        own = np.flatnonzero(made.edge_index[end] == node).tolist()
        assert read[: len(own)] == own
        read = read[len(own) :]
    assert not read


def test_no_launch_moves_less_than_it_must() -> None:
    registers = {(hidden, name): 255 for hidden in (64, 128) for name in ("bf16", "fp32")}
    rows = rows_of("drawn", graph(), registers)
    assert len(rows) == 4 * 5
    known = {f"{name}_h{hidden}" for hidden, name in registers}
    assert worst_ratios(rows).keys() == known
    assert max(worst_ratios(rows).values()) == max(row["ratio"] for row in rows)
    assert all(row["ratio_half_the_l2"] >= row["ratio"] >= 1 for row in rows)
    compiled = [
        {"hidden": 128, "spilled": 3, "atomics": ["atom.add.f32"]},
        {"hidden": 64, "spilled": 5, "atomics": []},
    ]
    parts = {
        "layer 0 edge": ["forward", "sum_at_ends"],
        "layer 0 node": ["mm"] * 7,
        "layer 1 edge": ["forward"],
    }
    assert beside(parts) == {"layer 0 node": 7}
    found = summary(rows, [[{}, 20, parts]], compiled)
    assert found == {
        "launches_per_layer_and_pass": 2,
        "traffic_ratio": max(row["ratio"] for row in rows),
        "float_atomics": 1,
        "spills_h128": 3,
    }
    table = gpu_tables.kernels({"rows": rows, "data_sheets": [{"name": "A100"}]})
    assert len(table.rows) == 10
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_published_counts_are_within_their_bounds() -> None:
    found = read_json(CHECKOUT / RESULTS / "kernels.json")["summary"]
    assert found["launches_per_layer_and_pass"] <= 4
    assert 1 <= found["traffic_ratio"] <= 1.5
    assert found["float_atomics"] == found["spills_h128"] == 0


def test_the_published_data_sheets_are_those_of_the_code() -> None:
    found = read_json(CHECKOUT / RESULTS / "kernels.json")
    assert found["data_sheets"] == [asdict(sheet) for sheet in WHOLE_SHEETS]
    table = gpu_tables.data_sheets(found)
    assert table.rows[0] == ["A100", "1.555", "312", "19.5", "40"]
    assert all(len(row) == len(table.columns) for row in table.rows)
