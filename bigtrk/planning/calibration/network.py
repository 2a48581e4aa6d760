"""The links between ranks, measured: all-reduces and all-to-alls within hosts and between them."""

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from bigtrk.cost.links import Link
from bigtrk.parallel.collectives import all_max, gather_items
from bigtrk.parallel.ranks import Ranks
from bigtrk.planning.calibration.least_squares import non_negative
from bigtrk.tracing import waiting

_WORDS = (1, 2**12, 2**18, 2**22)  # float32 numbers that a rank swaps or sums
_REPEATS = 7


@dataclass(frozen=True)
class Links:
    """The measured links; None where no two ranks are joined by one."""

    within: Link | None
    between: Link | None


NO_LINKS = Links(within=None, between=None)


@dataclass(frozen=True)
class Timed:
    """A collective's messages one after another, the bytes that a rank sends, and its seconds."""

    messages: float
    n_bytes: float
    seconds: float


def measure_links(ranks: Ranks) -> Links:
    """Measures the links of a rank's host, and those between hosts, which all of a host's ranks
    share: the first of each host swap, and so do the second ones meanwhile, and so on.

    Collective: the results are the same on all ranks, those of the slowest.
    """
    hosts: dict[str, list[int]] = {}
    for rank, host in enumerate(gather_items(platform.node())):
        hosts.setdefault(host, []).append(rank)
    within = _measure_groups(ranks, list(hosts.values()))
    across = [
        [on_host[i] for on_host in hosts.values() if i < len(on_host)]
        for i in range(max(map(len, hosts.values())))
    ]
    return Links(within, _measure_groups(ranks, across))


def _measure_groups(ranks: Ranks, groups: Sequence[Sequence[int]]) -> Link | None:
    """Measures groups of ranks, all at once; None if all have one rank."""
    with waiting():
        made = [dist.new_group(list(group)) for group in groups]
    found: list[float] = [0.0, 0.0]
    for group, members in zip(made, groups, strict=True):
        if ranks.rank in members and len(members) > 1:
            link = fit_link(_timings(group, len(members), ranks.device))
            found = [link.latency, 1 / link.bandwidth]
    latency, per_byte = all_max(found, ranks.device).tolist()
    return Link(latency=latency, bandwidth=1 / per_byte) if per_byte else None


def fit_link(timed: Sequence[Timed]) -> Link:
    """Fits latency and bandwidth by relative errors."""
    seconds = np.array([one.seconds for one in timed])
    design = np.array([[one.messages, one.n_bytes] for one in timed]) / seconds[:, None]
    latency, per_byte = non_negative(design, np.ones(len(timed)))
    return Link(latency=float(latency), bandwidth=float(1 / max(per_byte, 1e-13)))


def _timings(group: dist.ProcessGroup, size: int, device: torch.device) -> list[Timed]:
    timed = []
    for words in _WORDS:
        each = max(1, words // size)
        sent, received = (torch.zeros(each * size, device=device) for _ in range(2))
        n_bytes = 4 * each * (size - 1)
        swap = _seconds(partial(dist.all_to_all_single, received, sent, group=group), sent)
        timed.append(Timed(size - 1, n_bytes, swap))
        summed = _seconds(partial(dist.all_reduce, sent, group=group), sent)
        timed.append(Timed(2 * (size - 1), 2 * n_bytes, summed))
    return timed


def _seconds(collective: Callable[[], object], tensor: Tensor) -> float:
    """Returns the median seconds of a collective, after a first call that makes its connections."""
    found = []
    for _ in range(1 + _REPEATS):
        start = time.perf_counter()
        with waiting():
            collective()
            if tensor.is_cuda:
                torch.cuda.synchronize(tensor.device)
        found.append(time.perf_counter() - start)
    return statistics.median(found[1:])
