"""The progress of a run, between two steps."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from bigtrk.config import Count
from bigtrk.records.metrics import StepRecord
from bigtrk.training.best.best import Best
from bigtrk.training.schedule import Plateau
from bigtrk.training.spikes import LossHistory


@dataclass(frozen=True)
class EpochTotals:
    """The totals of an epoch's steps so far, for its record.

    steps, events (an event counts in each of its steps) and edges: the numbers learnt from.
    loss: the sum of the steps' losses, each times its events. seconds: those of all training,
    spikes and what was rolled back included. left_out: the steps that were spikes.
    """

    steps: Count = 0
    events: Count = 0
    edges: Count = 0
    loss: float = 0.0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    left_out: tuple[Count, ...] = ()

    def after(self, record: StepRecord) -> "EpochTotals":
        """Returns the totals after a step of this record."""
        timed = replace(self, seconds=self.seconds + record.seconds)
        if record.spike:
            return replace(timed, left_out=(*self.left_out, record.step))
        assert record.loss is not None, "what is not finite is not learnt from"
        return replace(
            timed,
            steps=self.steps + 1,
            events=self.events + record.events,
            edges=self.edges + record.edges,
            # Weighting by events lets a short last step count for what it holds.
            loss=self.loss + record.loss * record.events,
        )

    def before(self, step: int) -> "EpochTotals":
        """Returns the totals without the spikes that a roll-back has not reached again."""
        return replace(self, left_out=tuple(number for number in self.left_out if number < step))


@dataclass(frozen=True)
class Progress:
    """The progress of a run: epochs completed, steps completed of the next (`cursor`) and of the
    whole run (`step`), and what the learning rate, the spike guard and the epoch's record depend
    on. best: the search for the best epoch, if there is one.
    """

    epoch: Count
    cursor: Count
    step: Count
    plateau: Plateau
    history: LossHistory
    totals: EpochTotals
    best: Best | None = None

    def fits(self, per_epoch: int) -> bool:
        """Says whether a run of `per_epoch` steps an epoch has this place, all steps counted."""
        first, totals = self.epoch * per_epoch, self.totals
        counted = totals.steps + len(totals.left_out)
        return (
            self.cursor == self.step - first == counted <= per_epoch
            and all(first <= step < self.step for step in totals.left_out)
            and (counted == 0 or totals.seconds > 0)
            and self._best_fits()
        )

    def _best_fits(self) -> bool:
        """Says whether the best epoch, if there is one, lies before this place."""
        best = self.best.best if self.best else None
        return best is None or (best.epoch < self.epoch and best.step <= self.step)
