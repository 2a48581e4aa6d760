"""The scalars that a dashboard shows of all that are recorded, in its order, by their names."""

from collections.abc import Callable
from dataclasses import dataclass

from bigtrk.records.live.scalars import X_AXES
from bigtrk.reports.elements import figures


@dataclass(frozen=True)
class Shown:
    """A scalar by its name, how its value is written, and in which unit that is."""

    name: str
    write: Callable[[float | None], str]
    unit: str = ""

    @property
    def label(self) -> str:
        """Returns the name, and the unit where there is one."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def axis(self) -> str:
        """Returns what its curve is drawn against, "step" or "epoch"."""
        return X_AXES[self.name.partition("/")[0]]


LOSSES = (
    Shown("step/loss", figures.loss),
    Shown("step/pt_loss", figures.loss),
    Shown("epoch/train_loss", figures.loss),
    Shown("validation/validation/loss", figures.loss),
    Shown("epoch/validation/loss", figures.loss),
    Shown("epoch/average/validation/loss", figures.loss),
    Shown("epoch/embedding/loss", figures.loss),
)
RATIOS = tuple(
    Shown(f"epoch/validation/{name}", figures.percent, "%")
    for name in ("auc", "efficiency", "target_purity", "purity")
)
SHARES = tuple(
    Shown(f"epoch/shares/{name}", figures.share, "%")
    for name in ("compute", "exchange", "reduce", "data")
)
SPEED = (
    Shown("step/lr", figures.norm),
    Shown("step/seconds", figures.seconds, "s"),
    Shown("epoch/edges_per_second", figures.rate),
    Shown("epoch/peak_memory_bytes", figures.memory),
)
SHOWN = (*LOSSES, *RATIOS, *SPEED, *SHARES)
NAMES = frozenset(one.name for one in SHOWN)
