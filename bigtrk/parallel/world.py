"""A rank's view of the job: itself, its groups, what it measures."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from bigtrk.parallel.groups import BlockGroups
from bigtrk.parallel.peak_memory import PeakMemory
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.stopwatch import Stopwatch


@dataclass(frozen=True)
class World:
    """A rank's view of the others, for all that trains or scores.

    groups: those of the ranks that hold the sectors of one event. stopwatch and memory: those of
    this rank.
    """

    ranks: Ranks
    groups: BlockGroups
    stopwatch: Stopwatch
    memory: PeakMemory

    @property
    def device(self) -> torch.device:
        """Returns the accelerator of this rank where there is one, else the CPU."""
        return self.ranks.device

    def overlaps(self, num_ranks: int) -> bool:
        """Whether layers that can do so compute while the halo rows of an event on `num_ranks`
        ranks travel: on GPUs, and between hosts. Within a host of CPUs the cores that compute move
        the rows, so that nothing is gained.
        """
        return self.device.type == "cuda" or num_ranks > self.ranks.local_size


def make_world(ranks: Ranks, num_ranks: Iterable[int] = ()) -> World:
    """Makes the groups for events on these numbers of ranks. Collective.

    Without any, events are taken whole.
    """
    groups, device = BlockGroups(ranks, num_ranks), ranks.device
    return World(ranks, groups, Stopwatch(device), PeakMemory(device))
