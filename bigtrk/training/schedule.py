"""When: the learning rate of each step, and validation and the end of a run by the clock."""

import math
from dataclasses import dataclass

import torch

from bigtrk.config import Count
from bigtrk.errors import InputError
from bigtrk.parallel.collectives import all_max
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.training.settings import TrainingSettings

# A loss is better if it is lower by a ten-thousandth, as in torch's ReduceLROnPlateau.
IMPROVEMENT = 1e-4
FACTOR = 0.5  # of the learning rate on a plateau


@dataclass(frozen=True)
class Plateau:
    """The state of the plateau schedule: the best loss, the epochs since, the reductions."""

    best: float | None = None
    waited: Count = 0
    reductions: Count = 0

    def after(self, loss: float, patience: int) -> "Plateau":
        """Returns the state after an epoch of this loss."""
        if math.isfinite(loss) and (self.best is None or loss < self.best * (1 - IMPROVEMENT)):
            return Plateau(loss, 0, self.reductions)
        if self.waited < patience:
            return Plateau(self.best, self.waited + 1, self.reductions)
        return Plateau(self.best, 0, self.reductions + 1)


@dataclass(frozen=True)
class Schedule:
    """The schedule: warm-up, then constant, cosine or plateau; `total_steps` are the whole run's.

    Raises:
        InputError: the cosine has no steps left after the warm-up.
    """

    optimizer: OptimizerSettings
    events_per_step: int
    total_steps: int

    def __post_init__(self) -> None:
        warmup = self.optimizer.warmup_steps
        if self.optimizer.schedule == "cosine" and warmup >= self.total_steps:
            raise InputError(
                f"optimizer.warmup_steps={warmup}: the whole run has {self.total_steps} steps, "
                f"which leaves none for the cosine; lower it or raise training.epochs"
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
        """Returns the rate of `step`, counted from 0; `plateau`: the state after the last epoch."""
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
    """Counts the `seconds` that this process has trained, validation excluded."""

    settings: TrainingSettings
    device: torch.device
    seconds: float = 0.0
    validated_at: float = 0.0
    out_of_time: bool = False

    def look(self) -> bool:
        """Whether to validate now, and notes when the run must end. Collective.

        The clock of any rank decides, so that all ranks do the same.
        """
        settings = self.settings
        if settings.minutes is None and settings.validate_minutes is None:
            return False
        ends = _exceeds(self.seconds, settings.minutes)
        validates = _exceeds(self.seconds - self.validated_at, settings.validate_minutes)
        ended, due = all_max([ends, validates], self.device).tolist()
        self.out_of_time = bool(ended)
        if not due or ended:
            return False
        self.validated_at = self.seconds
        return True


def _exceeds(seconds: float, minutes: float | None) -> bool:
    return minutes is not None and seconds > 60 * minutes
