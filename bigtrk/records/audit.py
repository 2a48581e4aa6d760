"""`audit.json`: gradients of a run's mini-batches beside the exact gradient (`bigtrk audit`).

Squares are in units of |G|^2, the squared norm of the exact gradient of all events audited.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import AwareDatetime, Field

from bigtrk.config import Count
from bigtrk.records.record import FileRecord, Loss, Number, PathText, Place, Record, Text, some


class Measured(Record):
    """An estimate and its standard error; None where too few draws are independent to tell one."""

    value: Number
    error: Number | None = None


class DrawStatistics(Record):
    """Estimates from draws g, with the exact gradient r of each one's event.

    bias_squared: |E(g - r)|^2, without bias of its own, so also below 0. variance: the trace of the
    covariance of g - r. noise: that of g. cosine: of a draw and r, the mean. cosine_of_mean: of
    the mean draw and the mean r. signal: |E g|^2 over the trace of the covariance of g; noise_scale
    is one over it, in draws, None where no signal was found. progress: of a step along a draw, 1
    for the exact gradient. None: cannot be told from so few draws.
    """

    bias_squared: Measured | None = None
    variance: Measured | None = None
    noise: Measured | None = None
    cosine: Measured | None = None
    cosine_of_mean: Number | None = None
    signal: Measured | None = None
    noise_scale: Number | None = None
    progress: Measured | None = None


class DrawnWay(Record):
    """Draws of one way to make mini-batches.

    edges: in the loss of a draw, and event_edges in that of a whole event, both means. seconds: of
    computing a draw's gradient, the median.
    """

    way: Text
    draws: Count
    edges: Number
    event_edges: Number
    seconds: Number
    whole: DrawStatistics
    parts: dict[Text, DrawStatistics] = some()

    @property
    def noise_scale_in_events(self) -> float | None:
        """Returns the noise scale in events' worth of edges."""
        scale = self.whole.noise_scale
        return None if scale is None or not self.event_edges else scale * self._share

    @property
    def _share(self) -> float:
        return self.edges / self.event_edges


class SameGradient(Record):
    """The exact gradient in other arithmetic: how far it is from `reference`.

    difference: of the mean over events, relative to the reference's norm. worst: of an event.
    cosine: the smallest of an event. limit: the largest difference that is rounding alone, where it
    should be that.
    """

    way: Text
    reference: Text
    difference: Number
    worst: Number
    cosine: Number
    limit: Number | None = None
    parts: dict[Text, Number] = some()

    @property
    def exact(self) -> bool | None:
        """Says whether it is the same but for rounding; None where more is expected."""
        return None if self.limit is None else self.worst <= self.limit


class AuditedWeights(Record):
    """The gradients at one point of a training; step: how many came before, None if not known.

    loss: the mean over whole events. norm: of the exact gradient of all events.
    """

    weights: Text
    step: Place | None = None
    loss: Loss
    norm: Number
    drawn: tuple[DrawnWay, ...] = ()
    same: tuple[SameGradient, ...] = ()


class AuditRecord(FileRecord):
    """`audit.json` of a run's folder. data: the folder of events; events: how many of them."""

    made_again: ClassVar[str] = "remove it and audit again"

    format: Literal[1] = 1
    data: PathText
    made: AwareDatetime
    events: Count
    draws: Count
    seed: Count
    points: Annotated[tuple[AuditedWeights, ...], Field(max_length=100)]
