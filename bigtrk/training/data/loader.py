"""The shares of each step, read while the step before is computed.

What an accelerator is to compute travels there in a stream of its own (upload.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from bigtrk.parallel.collectives import together
from bigtrk.parallel.routing import Assignment, MicroStep
from bigtrk.parallel.world import World
from bigtrk.process.threads import Prefetcher
from bigtrk.training.data.share import Share
from bigtrk.training.data.upload import Lane, Read


@dataclass(frozen=True)
class Loader:
    """Reads this rank's assignments in routed steps; `make` makes a share of one, or of none.

    prefetcher: the thread that reads the next step.
    """

    make: Callable[[Assignment | None], Share]
    world: World
    prefetcher: Prefetcher = field(default_factory=Prefetcher)

    def load(self, step: Sequence[MicroStep]) -> list[Share]:
        """Reads this rank's micro-steps of a step; as many as every other rank has."""
        return [self._share(micro_step) for micro_step in step]

    def _share(self, micro_step: MicroStep) -> Share:
        """Reads this rank's share, with as many sectors as any rank's has: ZeRO-3 insists that all
        ranks fetch weights in one order, and it fetches a layer's for each tensor that it gives.
        """
        share = self.make(micro_step[self.world.ranks.rank])
        most = max((len(one.held) for one in micro_step if one), default=1)
        lacking = most - len(share.batches)
        return share.padded(self.make(None).batches[0], lacking) if lacking else share

    def steps(self, routes: Sequence[Sequence[MicroStep]]) -> Iterator[list[Share]]:
        """Yields `load` of each step, one step ahead in a thread. Collective."""
        lane = Lane(self.world.device)

        def read(step: Sequence[MicroStep]) -> Read[list[Share]]:
            return lane.read(lambda: self.load(step))

        for result in self.prefetcher.each(partial(read, step) for step in routes):
            with self.world.stopwatch.time("data"):
                # A rank that cannot read stops the others too, before they wait for it.
                found = together(result)
            yield lane.hand_over(found)
