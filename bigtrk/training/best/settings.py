"""The `training.best` section of the configuration."""

from typing import Literal, Self

from pydantic import Field, model_validator

from bigtrk.config import Settings

Metric = Literal[
    "loss",
    "auc",
    "efficiency",
    "target_purity",
    "total_purity",
    "purity",
    "log_pt_error",
    "train_loss",
]
# All others are better the larger they are.
MINIMISED: tuple[Metric, ...] = ("loss", "log_pt_error", "train_loss")


class BestSettings(Settings):
    """The epoch that counts as the best, and how long a run goes on without a better one."""

    metric: Metric | None = None
    """Keep the checkpoint of the epoch that is the best in it, beside the newest ones, and name it
    in the run's `best.json`: the validation's `loss`, `auc`, `efficiency`, `target_purity`,
    `total_purity`, `purity` or `log_pt_error`, or `train_loss`; losses and errors are best when
    small, the others when large. Without it only the newest checkpoints are kept."""
    patience: int | None = Field(None, ge=1, lt=2**31)
    """End the run when so many epochs in a row were no better than the best before them; all epochs
    without it [epochs]."""

    @model_validator(mode="after")
    def _has_a_metric(self) -> Self:
        if self.patience is not None and self.metric is None:
            raise ValueError("patience needs a metric to be patient with; set training.best.metric")
        return self
