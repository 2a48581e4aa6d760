"""The process groups of events that ranks share: aligned blocks of ranks, made once."""

import platform
from collections.abc import Iterable, Sequence
from itertools import groupby

import torch.distributed as dist

from bigtrk.console import warn_once
from bigtrk.parallel.collectives import gather_items
from bigtrk.parallel.ranks import Ranks


class BlockGroups:
    """The group of this rank's aligned block of K ranks, for each size K."""

    def __init__(self, ranks: Ranks, sizes: Iterable[int]) -> None:
        """Collective: all ranks pass the same `sizes`, since all take part in making a group."""
        self._groups: dict[int, dist.ProcessGroup] = {}
        shared = sorted(set(sizes) - {1})
        if shared:
            _warn_if_dealt_out(ranks)
        for size in shared:
            for first in range(0, ranks.world_size - size + 1, size):
                members = range(first, first + size)
                group = dist.new_group(list(members))
                if ranks.rank in members:
                    self._groups[size] = group

    def of_size(self, size: int) -> dist.ProcessGroup:
        return self._groups[size]


def _warn_if_dealt_out(ranks: Ranks) -> None:
    """Says so where the ranks of a host do not follow each other. Collective."""
    hosts = gather_items(platform.node())
    if ranks.is_first and dealt_out(hosts):
        warn_once(
            "placement",
            "the ranks of a host do not follow each other, so that an event's sectors exchange "
            "more between hosts; start ranks in blocks (srun --distribution=block)",
        )


def dealt_out(hosts: Sequence[str]) -> bool:
    """Says whether a host's ranks do not follow each other, by the host of each rank, [W]."""
    return len(list(groupby(hosts))) > len(set(hosts))
