"""The schedule of a run: learning rate by step, times to validate, best epoch, and the end."""

import math
from dataclasses import dataclass, replace

import torch

from bigtrk.config import Count
from bigtrk.errors import InputError
from bigtrk.parallel.collectives import all_max
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.records.metrics import EpochRecord, metric_of
from bigtrk.records.run import BestRecord
from bigtrk.training.run_folder import checkpoint_name
from bigtrk.training.settings import MINIMISED, Configuration, Metric, TrainingSettings

# A loss is better if it is lower by a ten-thousandth, as in torch's ReduceLROnPlateau.
IMPROVEMENT = 1e-4
FACTOR = 0.5  # of the learning rate on a plateau


@dataclass(frozen=True)
class Plateau:
    """The state of the plateau schedule: best loss, epochs waited since, number of reductions."""

    best: float | None = None
    waited: Count = 0
    reductions: Count = 0

    def after(self, loss: float, patience: int) -> "Plateau":
        """Returns the state after an epoch with the mean loss `loss`."""
        if math.isfinite(loss) and (self.best is None or loss < self.best * (1 - IMPROVEMENT)):
            return Plateau(loss, 0, self.reductions)
        if self.waited < patience:
            return Plateau(self.best, self.waited + 1, self.reductions)
        return Plateau(self.best, 0, self.reductions + 1)


@dataclass(frozen=True)
class Schedule:
    """The learning rate by step: warm-up, then constant, cosine or plateau. total_steps: of the
    whole run. Raises InputError if the cosine has no steps left after the warm-up.
    """

    optimizer: OptimizerSettings
    events_per_step: int
    total_steps: int

    def __post_init__(self) -> None:
        warmup = self.optimizer.warmup_steps
        if self.optimizer.schedule == "cosine" and warmup >= self.total_steps:
            raise InputError(
                f"optimizer.warmup_steps={warmup}: leaves no steps for optimizer.schedule=cosine "
                f"(the whole run has {self.total_steps}); lower it, or raise training.epochs"
            )

    @property
    def peak(self) -> float:
        """Returns the learning rate after the warm-up."""
        factors = {
            "none": 1.0,
            "linear": float(self.events_per_step),
            "sqrt": math.sqrt(self.events_per_step),
        }
        return self.optimizer.lr * factors[self.optimizer.lr_scaling]

    def rate(self, step: int, plateau: Plateau) -> float:
        """Returns the learning rate of `step`, from 0. plateau: the state after the last epoch."""
        warmup = self.optimizer.warmup_steps
        if step < warmup:
            return self.peak * (step + 1) / warmup
        match self.optimizer.schedule:
            case "cosine":
                done = (step - warmup) / (self.total_steps - warmup)
                return self.peak * (1 + math.cos(math.pi * done)) / 2
            case "plateau":
                return self.peak * FACTOR**plateau.reductions
            case "constant":
                return self.peak


@dataclass
class Clock:
    """Measures the `seconds` that this process has trained, validation excluded."""

    settings: TrainingSettings
    device: torch.device
    seconds: float = 0.0
    validated_at: float = 0.0
    out_of_time: bool = False

    def look(self) -> bool:
        """Whether to validate now, by any rank's clock; `out_of_time`: the run ends. Collective."""
        settings = self.settings
        if settings.minutes is None and settings.validate_minutes is None:
            return False
        ends = self.seconds > 60 * (settings.minutes or math.inf)
        since = self.seconds - self.validated_at
        validates = since > 60 * (settings.validate_minutes or math.inf)
        ended, due = all_max([ends, validates], self.device).tolist()
        self.out_of_time = bool(ended)
        if not due or ended:
            return False
        self.validated_at = self.seconds
        return True


_OF_HITS = ("loss", "train_loss")  # all metrics of a model that embeds hits


@dataclass(frozen=True)
class BestEpoch:
    """An epoch: the metric's value at its end, its number (from 0), and the steps until its end."""

    value: float
    epoch: Count
    step: Count


@dataclass(frozen=True)
class Best:
    """The search for the best epoch: the best, the former best, and the epochs since the best."""

    metric: Metric
    best: BestEpoch | None = None
    before: BestEpoch | None = None
    waited: Count = 0

    def after(self, record: EpochRecord, step: int) -> "Best":
        """Returns the state after the epoch of `record`, which ended after `step` steps."""
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
        """Whether the last `patience` epochs were no better; never if `patience` is None."""
        return patience is not None and self.waited >= patience

    @property
    def record(self) -> BestRecord | None:
        """Returns the content of `best.json`; None while no epoch has a value of the metric."""
        if self.best is None:
            return None
        name = checkpoint_name(self.best.step)
        return BestRecord(metric=self.metric, checkpoint=name, **vars(self.best))

    def kept(self, step: int) -> list[str]:
        """Lists checkpoints to keep besides that of `step`: the best, or the former best, too."""
        known = [self.best, self.before if self.best and self.best.step == step else None]
        return [checkpoint_name(one.step) for one in known if one]


def check_recorded(configuration: Configuration, n_validation: int) -> None:
    """Raises InputError if the run would not record the metric of its best epoch."""
    metric, model = configuration.training.best.metric, configuration.model
    if metric in (None, "train_loss"):
        return
    why = ""
    if not n_validation:
        why = "needs a validation event; set data.validation=1 or more, or the metric train_loss"
    elif model.kind == "hit" and metric not in _OF_HITS:
        why = f"model.name={model.name} embeds hits, so choose {' or '.join(_OF_HITS)}"
    elif metric == "log_pt_error" and not configuration.training.pt_weight:
        why = "is recorded only where pT is trained, too; set training.pt_weight above 0"
    if why:
        raise InputError(f"training.best.metric={metric}: {why}")
