"""Each step's batches, read while the step before is computed."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from bigtrk.parallel.collectives import together
from bigtrk.parallel.routing import route
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.training.batch import Batch, BatchMaker
from bigtrk.training.event_source import EventSource

Plan = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Loader:
    """Routes steps over ranks and reads this rank's shares."""

    maker: BatchMaker
    sources: list[EventSource]
    rank: int
    world_size: int
    stopwatch: Stopwatch

    def load(self, events: Sequence[int]) -> list[Batch]:
        """This rank's micro-steps of a step; as many as every other rank has."""
        stored = [source.parts for source in self.sources]
        micro_steps = route(events, stored, self.world_size)
        return [self.maker.make(micro_step[self.rank], self.sources) for micro_step in micro_steps]

    def steps(self, plan: Plan) -> Iterator[list[Batch]]:
        """`load` of each step of the plan, one step ahead in a thread. Collective."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            ahead: Future[list[Batch]] | None = None
            for i in range(len(plan)):
                current = ahead or pool.submit(self.load, plan[i])
                ahead = pool.submit(self.load, plan[i + 1]) if i + 1 < len(plan) else None
                with self.stopwatch.time("data"):
                    # A rank that cannot read stops the others too, before they wait for it.
                    batches = together(current.result)
                yield batches
