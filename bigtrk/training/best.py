"""The best epoch of a run, and its weights."""

import math
from dataclasses import dataclass, replace

from bigtrk.config import Count
from bigtrk.errors import InputError
from bigtrk.records.metrics import EpochRecord, metric_of
from bigtrk.records.run import BestRecord
from bigtrk.training.run_folder import checkpoint_name
from bigtrk.training.settings import MINIMISED, Configuration, Metric

_OF_HITS = ("loss", "train_loss")  # all metrics of a model that embeds hits


@dataclass(frozen=True)
class BestEpoch:
    """An epoch: the metric's value at its end, its number, and the number of steps until then."""

    value: float
    epoch: Count
    step: Count


@dataclass(frozen=True)
class Best:
    """The search for the best epoch: the best so far, the one before it, and the number of epochs
    since the best (or the start).
    """

    metric: Metric
    best: BestEpoch | None = None
    before: BestEpoch | None = None
    waited: Count = 0

    def after(self, record: EpochRecord, step: int) -> "Best":
        """Returns the state after an epoch of this record, which ended after `step` steps."""
        value = metric_of(self.metric, record)
        sign = -1 if self.metric in MINIMISED else 1
        if (
            value is None
            or not math.isfinite(value)
            or (self.best is not None and sign * value <= sign * self.best.value)
        ):
            return replace(self, waited=self.waited + 1)
        return Best(self.metric, BestEpoch(value, record.epoch, step), self.best)

    def is_over(self, patience: int | None) -> bool:
        """Whether so many epochs were no better, or more; never without a patience."""
        return patience is not None and self.waited >= patience

    @property
    def record(self) -> BestRecord | None:
        """Returns the content of `best.json`; None while no epoch has the metric."""
        if self.best is None:
            return None
        name = checkpoint_name(self.best.step)
        return BestRecord(metric=self.metric, checkpoint=name, **vars(self.best))

    def kept(self, step: int) -> list[str]:
        """Lists the checkpoints to keep beside the newest, which is that after `step` steps: the
        best and, where the newest is the best, the best before it, for who falls back.
        """
        known = [self.best, self.before if self.best and self.best.step == step else None]
        return [checkpoint_name(one.step) for one in known if one]


def search_of(configuration: Configuration) -> Best | None:
    """Begins the search that a run is configured to make, if any."""
    metric = configuration.training.best.metric
    return Best(metric) if metric else None


def check_recorded(configuration: Configuration, n_validation: int) -> None:
    """Raises InputError where a run that validates on so many events does not record the metric of
    its best epoch.
    """
    metric, model = configuration.training.best.metric, configuration.model
    if metric in (None, "train_loss"):
        return
    why = ""
    if not n_validation:
        why = "there is no event to validate on; set data.validation, or train_loss as the metric"
    elif model.kind == "hit" and metric not in _OF_HITS:
        why = f"{model.name} embeds hits; set it to {' or '.join(_OF_HITS)}"
    elif metric == "log_pt_error" and not configuration.training.pt_weight:
        why = "is recorded of a model with a head for pT; set training.pt_weight"
    if why:
        raise InputError(f"training.best.metric={metric}: {why}")
