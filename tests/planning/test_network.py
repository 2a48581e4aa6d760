"""Links between ranks: fitted to times that are known, and measured on real processes."""

import io
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch.distributed as dist
from torch import Tensor

from bigtrk import cli
from bigtrk.cost.cut_law import Exchange
from bigtrk.cost.links import Link, Network, all_reduce, exchange
from bigtrk.cost.machine_constants import CPU
from bigtrk.planning.calibration import calibrate
from bigtrk.planning.calibration.fitting import Sample
from bigtrk.planning.calibration.network import Links, Timed, fit_link, measure_links
from bigtrk.planning.calibration.warmup import Measured
from bigtrk.planning.calibration.warmup_cases import Case
from bigtrk.training.costs import load_constants
from tests.distributed.ranks import FORKSERVER, run_ranks
from tests.programs import free_port


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


OWN = Link(latency=0.5, bandwidth=2e9)  # of ranks that a calibration starts itself
LATE = 0.01  # s, by which what goes between hosts comes later


def late(hosts: str, late_rank: int, collective: Callable[..., Any]) -> Callable[..., Any]:
    """Has a collective of ranks on different hosts take longer, if the late one is among them."""

    def called(*tensors: Tensor, group: dist.ProcessGroup | None = None, **options: Any) -> Any:
        members = dist.get_process_group_ranks(group) if group else []
        if len({hosts[rank] for rank in members}) > 1 and late_rank in members:
            time.sleep(LATE)
        return collective(*tensors, group=group, **options)

    return called


def as_measured(cases: Sequence[Case], ranks: int = 1) -> Measured:
    """Stands for the warm-ups, which take minutes."""
    samples = [Sample(case, ranks, seconds=1.0, peak_bytes=2**29) for case in cases]
    return Measured(samples, OWN if ranks > 1 else None)


def calibrate_on(hosts: str, late_rank: int, rank: int, port: int, path: Path) -> None:
    """Types the command as a rank whose host bears its letter of `hosts`."""
    place = {"RANK": rank, "WORLD_SIZE": len(hosts), "LOCAL_RANK": hosts[:rank].count(hosts[rank])}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in {**place, **meeting}.items()})
    os.environ["LOCAL_WORLD_SIZE"] = str(hosts.count(hosts[rank]))
    sys.argv = ["bigtrk", "plan", "--calibrate", "--machine", str(path), "--json"]
    with (
        redirect_stdout(io.StringIO()),
        patch.object(platform, "node", lambda: hosts[rank]),
        patch.object(dist, "all_reduce", late(hosts, late_rank, dist.all_reduce)),
        patch.object(dist, "all_to_all_single", late(hosts, late_rank, dist.all_to_all_single)),
        patch.object(calibrate, "measure_apart", as_measured),
        patch.object(calibrate, "fit", lambda alone, together, start: start),  # noqa: ARG005
    ):
        cli.main()


@pytest.mark.parametrize(
    ("hosts", "late_rank"),
    [("aab", 0), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("ab", 0), ("aabb", 1)))],
)
def test_a_calibration_on_several_hosts_stores_the_links_between_them(
    tmp_path: Path, hosts: str, late_rank: int
) -> None:
    port, path = free_port(), tmp_path / "calibration.json"
    ranks = [
        FORKSERVER.Process(target=calibrate_on, args=(hosts, late_rank, rank, port, path))
        for rank in range(len(hosts))
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
        rank.kill()
    assert [rank.exitcode for rank in ranks] == [0] * len(hosts)
    found = load_constants(path).network
    assert LATE / 4 < found.between.latency < 1
    assert found.between.bandwidth > 1e6
    if hosts == "ab":  # neither has another on its host
        assert found.within == OWN
    else:
        assert found.within.latency < found.between.latency
        assert found.within.bandwidth > 1e6
        assert found.within not in (OWN, CPU.network.within)
