"""Where a run stands, between two steps."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from bigtrk.config import Count
from bigtrk.records.metrics import StepRecord
from bigtrk.training.schedule import Plateau
from bigtrk.training.spikes import LossHistory


@dataclass(frozen=True)
class EpochTotals:
    """What the steps of an epoch came to until now, for its record.

    steps, events (an event counts in each of its steps) and edges: of what was learnt from.
    loss: the sum of the steps' losses, each times its events. seconds: of all training, spikes and
    what was rolled back included. left_out: the steps that were spikes.
    """

    steps: Count = 0
    events: Count = 0
    edges: Count = 0
    loss: float = 0.0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    left_out: tuple[Count, ...] = ()

    def after(self, record: StepRecord) -> "EpochTotals":
        """The totals after a step of this record."""
        timed = replace(self, seconds=self.seconds + record.seconds)
        if record.spike:
            return replace(timed, left_out=(*self.left_out, record.step))
        assert record.loss is not None, "what is not finite is not learnt from"
        return replace(
            timed,
            steps=self.steps + 1,
            events=self.events + record.events,
            edges=self.edges + record.edges,
            # Weighted by events: a short last step counts for what it holds.
            loss=self.loss + record.loss * record.events,
        )

    def before(self, step: int) -> "EpochTotals":
        """Without the spikes that a roll-back knows of but has not come to again."""
        return replace(self, left_out=tuple(number for number in self.left_out if number < step))


@dataclass(frozen=True)
class Progress:
    """Where a run stands: epochs completed, steps completed of the next (`cursor`) and of the whole
    run (`step`), and what the learning rate, the spike guard and the epoch's record depend on.
    """

    epoch: Count
    cursor: Count
    step: Count
    plateau: Plateau
    history: LossHistory
    totals: EpochTotals

    def fits(self, per_epoch: int) -> bool:
        """Whether it is a place in a run of `per_epoch` steps an epoch, all of this one counted."""
        first, totals = self.epoch * per_epoch, self.totals
        counted = totals.steps + len(totals.left_out)
        return (
            self.cursor == self.step - first == counted <= per_epoch
            and all(first <= step < self.step for step in totals.left_out)
            and (counted == 0 or totals.seconds > 0)
        )
