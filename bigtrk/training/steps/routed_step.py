"""The steps of an epoch, laid over the ranks."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bigtrk.parallel.collectives import check_agreement
from bigtrk.parallel.routing import Cut, MicroStep


@dataclass(frozen=True)
class RoutedStep:
    """A step's event numbers and what each rank computes of them in each micro-step.

    mini_batch: true if it trains parts of events alone. imbalance: the most loaded rank's predicted
    seconds over the mean; None where nothing predicts it.
    """

    events: Sequence[int]
    micro_steps: Sequence[MicroStep]
    mini_batch: bool = False
    imbalance: float | None = None

    @property
    def cuts(self) -> dict[int, Cut]:
        """Returns in how many sectors, and on how many ranks, each event is trained; nothing for
        mini-batches.
        """
        if self.mini_batch:
            return {}
        ranks: dict[tuple[int, int], set[int]] = defaultdict(set)
        for micro_step in self.micro_steps:
            for rank, share in enumerate(micro_step):
                if share:
                    ranks[share.event, share.parts].add(rank)
        return {event: Cut(parts, len(on)) for (event, parts), on in ranks.items()}

    @property
    def busy_ranks(self) -> int:
        """Counts the ranks that have an event, or a share of one."""
        return sum(any(places) for places in zip(*self.micro_steps, strict=True))


def check_routes(steps: Sequence[RoutedStep]) -> None:
    """Checks that all ranks have the same routes, so the same number of micro-steps. Collective.

    Otherwise ranks would wait for each other for ever.

    Raises:
        InputError: routes differ; on all ranks, naming the first that does.
    """
    micro_steps = sum(len(step.micro_steps) for step in steps)
    digest = hashlib.sha256(repr([step.micro_steps for step in steps]).encode()).hexdigest()[:12]
    check_agreement({"routing": f"{micro_steps} micro-steps of digest {digest}"})
