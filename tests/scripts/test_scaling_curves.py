"""Predicted curves are of the sectors that were counted, and of the law where none were."""

from dataclasses import replace
from typing import Any

import pytest

from bigtrk.cost.event_size import EventSize, Exchange
from bigtrk.disk.files import read_json
from bigtrk.planning.sizes import PAPERS
from scripts.results import CHECKOUT
from scripts.scaling import scaling_curves
from scripts.scaling.counted_size import CountedSize
from scripts.scaling.scaling_curves import SECTORS, cases, curve

EVENT = "simulated, 1.0 M hits"


@pytest.fixture(scope="module")
def found() -> Any:
    """One event of partition_volumes.json, in 4 and 8 sectors."""
    between = {
        "tree": {"rows": 18098.0, "largest": 4527.0, "messages": 4.0},
        "random": {"rows": 45626.0, "largest": 9793.6, "messages": 3.75},
    }
    four = {
        "parts": 4,
        "cut_edges": 290_895,
        "largest_edges": 10_978_387,
        "halo_rows": 37_998,
        "largest_halo": 9652,
        "neighbours": {"mean": 2.5, "most": 3},
        "hosts": {},
    }
    eight = {
        "parts": 8,
        "cut_edges": 624_761,
        "largest_edges": 5_535_101,
        "halo_rows": 82_249,
        "largest_halo": 11_407,
        "neighbours": {"mean": 4.5, "most": 6},
        "hosts": {"4": between},
    }
    row = {"event": EVENT, "nodes": 1_001_835, "edges": 43_615_333, "merged": [four, eight]}
    return {"events": [row]}


@pytest.fixture(scope="module")
def sizes(found: Any) -> dict[tuple[str, int], EventSize]:
    return {(name, parts): size for name, size, parts in cases(found, (1, 4, 8, 512))}


def test_sectors_are_those_that_were_counted(sizes: dict[tuple[str, int], EventSize]) -> None:
    for parts, edges, halo in ((4, 10_978_387, 9652), (8, 5_535_101, 11_407)):
        sector = sizes[EVENT, parts].sector(parts)
        assert (sector.edges, sector.halo) == pytest.approx((edges, halo))
    cut = 624_761 / 43_615_333
    assert sizes[EVENT, 8].interior(8) == pytest.approx((1 - cut) / (1 + cut))


def test_exchanges_are_those_that_were_counted(sizes: dict[tuple[str, int], EventSize]) -> None:
    """On four ranks of a host each reaches three others; of 11,407 rows 4,527 come from another
    host if its ranks follow each other.
    """
    expected = {
        (4, True): Exchange(9652, 0, 3, 0),
        (4, False): Exchange(9652, 0, 3, 0),
        (8, True): Exchange(6880, 4527, 3, 4),
        (8, False): Exchange(1613.4, 9793.6, 3, 3.75),
    }
    for (parts, in_a_row), exchange in expected.items():
        assert vars(sizes[EVENT, parts].exchange(parts, 4, in_a_row)) == pytest.approx(
            vars(exchange)
        )


def test_an_event_of_another_size_differs_as_the_law_says(
    sizes: dict[tuple[str, int], EventSize],
) -> None:
    counted, law = sizes[EVENT, 8], EventSize(1_001_835, 43_615_333)
    larger = replace(counted, edges=1.5 * counted.edges, nodes=1.3 * counted.nodes)
    by_law = replace(law, edges=1.5 * law.edges, nodes=1.3 * law.nodes)
    growth = by_law.sector(8).halo / law.sector(8).halo
    assert growth != pytest.approx(1, rel=0.01)
    exchange = larger.exchange(8, 4)
    assert exchange.rows_between == pytest.approx(growth * 4527)
    assert exchange.messages_between == 4


def test_the_law_is_for_what_was_not_cut(sizes: dict[tuple[str, int], EventSize]) -> None:
    assert sizes[EVENT, 512] == EventSize(1_001_835, 43_615_333)
    assert sizes["CTD", 8] == PAPERS["ctd"]
    published = read_json(CHECKOUT / "docs/results/partition_volumes.json")
    for name, size, parts in cases(published, SECTORS):
        assert isinstance(size, CountedSize) == (name != "CTD" and parts > 1)


def test_a_row_is_that_worked_by_hand(
    sizes: dict[tuple[str, int], EventSize], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward and backward exchange 128 columns of float32 after each of 8 layers but the last.
    Messages take 10 us and 100 GB/s within a host, 20 us and 25 GB/s between hosts.
    """
    monkeypatch.setattr(scaling_curves, "weak_scaling", lambda *_, **__: [])
    exchanges, row_bytes = 2 * 7, 128 * 4
    expected = {
        4: (3 * 1e-5 + 9652 * row_bytes / 100e9,) * 2,
        8: (4 * 2e-5 + 4527 * row_bytes / 25e9, 3.75 * 2e-5 + 9793.6 * row_bytes / 25e9),
    }
    for parts, seconds in expected.items():
        row = curve(EVENT, sizes[EVENT, parts], parts, (16,))
        found = tuple(row[way]["exchange_seconds"] for way in ("tree", "anywhere"))
        assert found == pytest.approx(tuple(exchanges * one for one in seconds))
