"""The clock of a training: validation and the run's end, due by the time spent on training."""

from dataclasses import dataclass

import torch

from bigtrk.parallel.collectives import all_max
from bigtrk.training.settings import TrainingSettings


@dataclass
class Clock:
    """Counts the `seconds` that this process has trained, validation excluded."""

    settings: TrainingSettings
    device: torch.device
    seconds: float = 0.0
    validated_at: float = 0.0
    out_of_time: bool = False

    def look(self) -> bool:
        """Says whether to validate now, and notes when the run must end. Collective.

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
