"""The result of a proof."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch


class Trial(NamedTuple):
    """A graph in sectors beside the whole of it: the largest relative differences of its results
    and of its gradients, infinite where one is not finite.
    """

    graph: str
    sectors: int
    rows: float
    gradients: float

    @property
    def worst(self) -> float:
        return max(self.rows, self.gradients)


@dataclass(frozen=True)
class Proof:
    """The proof that a model is exact, or what it does wrong.

    worst: the largest relative difference in a trial, None where there was none that ended, or it
    is infinite; exchanges: their widths in a forward pass, None where none ended well.
    first_difference: the first layer that makes a difference, and why; None of an exact model.
    """

    model: str
    trials: tuple[Trial, ...] = ()
    exchanges: tuple[int, ...] | None = None
    first_difference: str | None = None

    @property
    def exact(self) -> bool:
        return self.first_difference is None

    @property
    def worst(self) -> float | None:
        found = max((trial.worst for trial in self.trials), default=torch.inf)
        return found if found < torch.inf else None

    def summary(self) -> dict[str, Any]:
        """Gives the proof in JSON's types, in short; exchanges: how many."""
        return {
            "model": self.model,
            "exact": self.exact,
            "worst": self.worst,
            "exchanges": None if self.exchanges is None else len(self.exchanges),
            "first_difference": self.first_difference,
        }
