"""The metric of a search, and the values of its trials."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bigtrk.records.metrics import EpochRecord, metric_of
from bigtrk.records.search import SearchFolder, Trial
from bigtrk.reports.elements import figures
from bigtrk.reports.run_plots import METRICS, TRAINING_LOSS

# Title and scale by name, as other pages have them.
TITLES = {
    **{name: (title, scale) for title, name, scale in METRICS},
    "train_loss": (TRAINING_LOSS, 1.0),
    "log_pt_error": ("Error of log pT", 1.0),
}
# The states of trials that have not ended say whether somebody trains them now.
STATES = ("complete", "training", "waiting", "pruned", "failed")


@dataclass(frozen=True)
class Metric:
    """The metric of a search; values are shown times `scale`."""

    name: str
    minimises: bool

    @property
    def title(self) -> str:
        return TITLES[self.name][0] if self.name in TITLES else self.name

    @property
    def scale(self) -> float:
        return TITLES[self.name][1] if self.name in TITLES else 1.0

    @property
    def sign(self) -> int:
        """Returns 1 or -1: values times it are the better the smaller they are."""
        return 1 if self.minimises else -1

    def text(self, value: float | None) -> str:
        """Formats a value; a dash where it is not known."""
        return figures.DASH if value is None else f"{self.scale * value:.5g}"

    def best(self, values: Sequence[float]) -> float:
        """Returns the best of some values."""
        return min(values) if self.minimises else max(values)

    def by_epoch(self, trial: Trial) -> list[tuple[EpochRecord, float]]:
        """Lists the epochs of a trial that record the metric, with its value."""
        if self.name not in TITLES:
            return []
        known = [(epoch, metric_of(self.name, epoch)) for epoch in trial.epochs]
        return [(epoch, x) for epoch, x in known if x is not None and math.isfinite(x)]

    def value(self, trial: Trial) -> float | None:
        """Returns the value of a trial; of one that has none yet, that of its best epoch so far."""
        if trial.record.value is not None:
            return trial.record.value
        return self.best([x for _, x in known]) if (known := self.by_epoch(trial)) else None


def state(trial: Trial) -> str:
    """Returns one of STATES."""
    if trial.record.state != "running":
        return trial.record.state
    return "training" if trial.is_training else "waiting"


def best_trial(search: SearchFolder, metric: Metric) -> Trial | None:
    """Returns the best trial that has trained to its end, the first of equals; before there is one,
    the best so far.
    """
    known = [trial for trial in search.trials if metric.value(trial) is not None]
    ended = [trial for trial in known if trial.record.state == "complete"]
    found = ended or known
    return min(found, key=lambda one: metric.sign * (metric.value(one) or 0.0), default=None)


def counts(search: SearchFolder) -> dict[str, int]:
    """Counts the trials in each state that there is."""
    found = [state(trial) for trial in search.trials]
    return {name: found.count(name) for name in STATES if name in found}
