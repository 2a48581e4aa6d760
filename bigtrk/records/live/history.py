"""The records of a run so far, in memory that does not grow with its length."""

from collections import defaultdict, deque
from collections.abc import Container
from dataclasses import dataclass, field

from bigtrk.records.live.curve import Curve
from bigtrk.records.live.scalars import place_of, scalars
from bigtrk.records.metrics import MetricsRecord, StepRecord

RECENT = 20  # steps


@dataclass
class History:
    """Records in the order in which they were written. names: of the scalars whose curves are kept.
    first: the step that the process which trains began with.

    `count` is the number of records, `newest` the last value of each scalar, `step` the last step,
    `recent` the last ones, `trained` the seconds of those since `first`.
    """

    names: Container[str]
    first: int = 0
    count: int = 0
    epoch: int = 0
    step: int | None = None
    trained: float = 0.0
    newest: dict[str, float] = field(default_factory=dict)
    curves: defaultdict[str, Curve] = field(default_factory=lambda: defaultdict(Curve))
    recent: deque[StepRecord] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, record: MetricsRecord) -> None:
        """Adds the next record."""
        self.count, self.epoch = self.count + 1, record.epoch
        for name, value in scalars(record):
            self.newest[name] = value
            if name in self.names:
                self.curves[name].add(place_of(record), value)
        if isinstance(record, StepRecord):
            self.step = record.step
            self.recent.append(record)
            self.trained += record.seconds if record.step >= self.first else 0.0

    @property
    def edges_per_second(self) -> float | None:
        """Returns the rate of the last steps; None before the first."""
        seconds = sum(step.seconds for step in self.recent)
        return sum(step.edges for step in self.recent) / seconds if seconds else None
