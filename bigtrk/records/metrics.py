"""The lines of `metrics.jsonl`: a record of each step and epoch, and of validation on the way.

Values that a record does not know are None.
"""

from typing import Literal

from pydantic import Field

from bigtrk.config import Count
from bigtrk.records.record import Loss, Measure, Number, Parts, Place, Ratio, Record, Text, some


class NormsRecord(Record):
    """Norms by part of the model: of gradients before clipping and weights; None: not finite."""

    gradient: dict[Text, Number | None] = some()
    weight: dict[Text, Number | None] = some()


class StepRecord(Record):
    """One optimizer step, counted from the start of the run. micro_steps: the number of
    micro-steps. routes: by event, its number of sectors; ranks: the number of ranks that held them,
    if another. imbalance: the most loaded rank's predicted seconds over the mean's. spike: the step
    was left out of the training. pt_loss: before it is multiplied by its weight.
    """

    kind: Literal["step"] = "step"
    epoch: Place
    step: Place
    loss: Loss | None = None
    pt_loss: Loss | None = None
    spike: bool = False
    lr: Number | None = None
    events: Count
    edges: Count
    micro_steps: Count | None = None
    imbalance: Number | None = None
    routes: dict[Text, Parts] = Field(default_factory=dict)
    ranks: dict[Text, Parts] = Field(default_factory=dict)
    norms: NormsRecord | None = None
    seconds: Measure


class MeanEdgeMetrics(Record):
    """Means over events of each event's ratios in [0, 1] and of the absolute error of log pT;
    numbers of edges (n_...) over all events. events_skipped: events that at least one mean leaves
    out. cuts: the scores that "98" to "99.8" percent of an event's target edges reach.
    """

    loss: Loss | None = None
    efficiency: Ratio | None = None
    target_purity: Ratio | None = None
    total_purity: Ratio | None = None
    purity: Ratio | None = None
    auc: Number | None = None
    log_pt_error: Number | None = None
    cuts: dict[Text, Ratio] = some()
    events_skipped: Number | None = None
    events_without_auc: Number | None = None
    n_target: Count | None = None
    n_predicted: Count | None = None
    n_found: Count | None = None
    n_true_predicted: Count | None = None

    @property
    def undefined(self) -> str:
        """Names the means that leave out events, and how many; "" where none does."""
        skipped, without_auc = self.events_skipped, self.events_without_auc
        if not skipped:
            return ""
        note = f"{'1 event lacks' if skipped == 1 else f'{skipped:.0f} events lack'} a metric"
        if without_auc:
            note += f", {without_auc:.0f} AUC: undefined unless target and other edges are there"
        return note


class Neighbourhood(Record):
    """All pairs of hits within `radius` in an embedding: edges per event, and their efficiency."""

    radius: Measure
    edges: Measure
    efficiency: Ratio


class EmbeddingMetrics(Record):
    """The mean loss of pairs, and graphs that keep "95" to "99.5" percent of the target edges."""

    loss: Loss | None = None
    at: dict[Text, Neighbourhood] = some()


class ValidationRecord(Record):
    """Validation on the way, after `seconds` of training since the start or a resumption."""

    kind: Literal["validation"] = "validation"
    epoch: Place
    step: Place
    seconds: Measure
    validation: MeanEdgeMetrics | None = None
    embedding: EmbeddingMetrics | None = None


class Shares(Record):
    """Shares of the mean rank's time; they sum to 1."""

    exchange: Number
    compute: Number
    reduce: Number
    data: Number


class PowerRecord(Record):
    """Energy, and the GPUs' mean load. utilisation: the share of time in which a kernel ran.
    memory: the share in use. absent: by device, why it was not read.
    """

    accelerator_joules: Number | None = None
    host_joules: Number | None = None
    utilisation: Number | None = None
    memory: Number | None = None
    absent: dict[Text, Text] = some()


class AverageRecord(Record):
    """Validation of the averaged weights; that of the current weights is in the epoch's record."""

    validation: MeanEdgeMetrics | None = None
    embedding: EmbeddingMetrics | None = None


class EpochRecord(Record):
    """One epoch. steps: without the `spikes` left out; time may have ended the epoch early.
    seconds: of its training part; batch_seconds: the median step's. lr: the last step's. imbalance:
    the slowest rank's compute time over the mean's. peak_memory_bytes: the largest rank's.
    """

    kind: Literal["epoch"] = "epoch"
    epoch: Place
    steps: Count
    spikes: Count | None = None
    planned_steps: Count | None = None
    events: Count
    edges: Count
    train_loss: Loss | None = None
    lr: Number
    seconds: Measure
    edges_per_second: Measure
    batch_seconds: Measure | None = None
    shares: Shares | None = None
    imbalance: Number | None = None
    peak_memory_bytes: Count
    power: PowerRecord = PowerRecord()
    validation: MeanEdgeMetrics | None = None
    embedding: EmbeddingMetrics | None = None
    average: AverageRecord | None = None

    @property
    def number(self) -> int:
        """Returns the epoch as people count it, from 1."""
        return self.epoch + 1


MetricsRecord = StepRecord | EpochRecord | ValidationRecord


# The key of each kind of record that its scalars are drawn against.
X_AXES = {"step": "step", "epoch": "epoch", "validation": "step"}


def place_of(record: MetricsRecord) -> int:
    """Returns the step or epoch that a record's scalars are drawn at, counted from 0."""
    place: int = getattr(record, X_AXES[record.kind])
    return place


def metric_of(metric: str, record: EpochRecord) -> float | None:
    """Returns a metric by its name in `training.best.metric`, of averaged weights where known."""
    if metric == "train_loss":
        return record.train_loss
    judged = record.average or record
    value: float | None = getattr(judged.validation or judged.embedding, metric, None)
    return value
