"""The law of METIS's cuts against what was counted."""

from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from bigtrk.cost.event_size import (
    CUT,
    HALO,
    MOST_EXCESS,
    EventSize,
    PowerLaw,
    event_size,
    imbalance,
)
from bigtrk.disk.files import read_json

EVENT = EventSize(100_000, 3_000_000)


def test_a_whole_event_cuts_and_exchanges_nothing() -> None:
    assert CUT(EVENT.nodes, EVENT.edges, 1) == HALO(EVENT.nodes, EVENT.edges, 1) == 0
    assert EVENT.sector(1).halo == 0
    assert EventSize(0, 0).sector(4).halo == 0


@pytest.mark.parametrize(
    ("law", "counted", "per"), [(CUT, "cut_edges", "edges"), (HALO, "halo_rows", "nodes")]
)
def test_the_law_is_as_far_off_the_cuts_that_were_counted_as_is_said(
    law: PowerLaw, counted: str, per: str
) -> None:
    events = read_json(Path("docs/results/partition_volumes.json"))["events"]
    edges = [event["edges"] for event in events]
    assert min(edges) < 0.4e6 < 40e6 < max(edges)
    off = [
        abs(law(event["nodes"], event["edges"], cut["parts"]) * event[per] / cut[counted] - 1)
        for event in events
        for cut in event["merged"]
    ]
    assert median(off) < 0.2
    assert max(off) < 0.72


def test_the_largest_part_is_as_large_as_was_counted() -> None:
    off = []
    for event in read_json(Path("docs/results/partition_volumes.json"))["events"]:
        for cut in event["merged"]:
            largest = cut["parts"] * cut["largest_edges"] / (event["edges"] + cut["cut_edges"])
            off.append(abs(imbalance(event["edges"], cut["parts"]) / largest - 1))
    assert len(off) == 32
    assert median(off) < 0.01
    assert max(off) < 0.08


def test_a_sector_holds_no_more_edges_than_its_event() -> None:
    assert EventSize(8, 10, 2, excess=MOST_EXCESS).sector(2).edges == 10


def test_sectors_that_merge_are_more_even() -> None:
    quality = {"cut_fraction": 0.02, "halo_fraction": 0.1, "edge_imbalance": 1.2}
    size = event_size({"nodes": 6500, "edges": 9205, "parts": 64, "quality": quality})
    merged = size.sector(8)
    assert 1 < merged.edges * 8 / 9205 < 1.06


def test_more_parts_are_cut_more_and_hold_less() -> None:
    sectors = [EVENT.sector(parts) for parts in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    for larger, smaller in pairwise(sectors):
        assert smaller.edges < larger.edges
        assert smaller.nodes < larger.nodes
    assert all(sector.halo <= EVENT.nodes for sector in sectors)
