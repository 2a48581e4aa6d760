"""The process groups of events that ranks share: aligned blocks of ranks, made once."""

from collections.abc import Iterable

import torch.distributed as dist

from bigtrk.parallel.ranks import Ranks


class BlockGroups:
    """The group of this rank's aligned block of K ranks, for each size K."""

    def __init__(self, ranks: Ranks, sizes: Iterable[int]) -> None:
        """Collective: all ranks pass the same `sizes`, since all take part in making a group."""
        self._groups: dict[int, dist.ProcessGroup] = {}
        for size in sorted(set(sizes) - {1}):
            for first in range(0, ranks.world_size - size + 1, size):
                members = range(first, first + size)
                group = dist.new_group(list(members))
                if ranks.rank in members:
                    self._groups[size] = group

    def of_size(self, size: int) -> dist.ProcessGroup:
        return self._groups[size]
