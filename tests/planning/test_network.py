"""Links between ranks: fitted to times that are known, and measured on real processes."""

import pytest

from bigtrk.cost.cut_law import Exchange
from bigtrk.cost.links import Link, Network, all_reduce, exchange
from bigtrk.planning.calibration.network import Links, Timed, fit_link, measure_links
from tests.distributed.ranks import run_ranks


def test_the_fit_finds_the_link_that_made_the_times() -> None:
    link, ranks = Link(latency=2e-4, bandwidth=3e9), 4
    timed = []
    for n_bytes in (4.0, 4e4, 4e6, 4e8):
        sent = n_bytes * (ranks - 1) / ranks
        volume = Exchange(sent, 0, ranks - 1, 0)
        swapped = exchange(Network(within=link, between=link), volume, 1)
        timed.append(Timed(ranks - 1, sent, swapped))
        ring = link.seconds(2 * (ranks - 1), 2 * sent)
        assert all_reduce(link, ranks, n_bytes) <= ring
        timed.append(Timed(2 * (ranks - 1), 2 * sent, ring))
    found = fit_link(timed)
    assert found.latency == pytest.approx(link.latency, rel=1e-3)
    assert found.bandwidth == pytest.approx(link.bandwidth, rel=1e-3)


def test_ranks_of_a_host_measure_the_link_within_it() -> None:
    first, second = run_ranks(2, measure_links)
    assert first == second
    assert isinstance(first, Links)
    assert first.between is None  # there is one host
    assert first.within is not None
    assert 0 <= first.within.latency < 1
    assert first.within.bandwidth > 1e6
