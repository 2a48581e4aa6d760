"""The lines of `metrics.jsonl`: records of steps, epochs, and validations within an epoch.

Values that a record does not know are None.
"""

from typing import Literal

from pydantic import Field

from bigtrk.config import Count
from bigtrk.records.record import Loss, Measure, Number, Parts, Place, Ratio, Record, Text, some


class NormsRecord(Record):
    """Norms by part of the model: gradients before clipping, and weights; None: not finite."""

    gradient: dict[Text, Number | None] = some()
    weight: dict[Text, Number | None] = some()


class StepRecord(Record):
    """One optimizer step, counted from the start of the run. micro_steps: the number of
    micro-steps. routes: the number of sectors by event; ranks: the number of ranks with these, if
    it differs. imbalance: the most loaded rank's predicted seconds over the mean. spike: the step
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
    numbers of edges (n_...) summed over events. events_skipped: events left out of at least one
    mean. cuts: the score cuts that keep "98" to "99.8" percent of an event's target edges.
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
        """Returns how many events lack a metric, as text; "" if none does."""
        skipped, without_auc = self.events_skipped, self.events_without_auc
        if not skipped:
            return ""
        note = f"{'1 event lacks' if skipped == 1 else f'{skipped:.0f} events lack'} a metric"
        if without_auc:
            note += f", {without_auc:.0f} AUC: undefined unless target and other edges are there"
        return note


class Neighbourhood(Record):
    """The graph of hits closer than `radius` in an embedding: edges per event, efficiency."""

    radius: Measure
    edges: Measure
    efficiency: Ratio


class EmbeddingMetrics(Record):
    """The mean loss of pairs; `at`: radius graphs by percent of target edges, "95" to "99.5"."""

    loss: Loss | None = None
    at: dict[Text, Neighbourhood] = some()


class ValidationRecord(Record):
    """A validation within an epoch, after `seconds` of training since the start or resumption."""

    kind: Literal["validation"] = "validation"
    epoch: Place
    step: Place
    seconds: Measure
    validation: MeanEdgeMetrics | None = None
    embedding: EmbeddingMetrics | None = None


class Shares(Record):
    """Shares of time by activity, averaged over ranks; they sum to 1."""

    exchange: Number
    compute: Number
    reduce: Number
    data: Number


class PowerRecord(Record):
    """Energy, and the GPUs' mean load. utilisation: the share of time in which a kernel ran.
    memory: the share of memory in use. absent: why a device was not read, by kind.
    """

    accelerator_joules: Number | None = None
    host_joules: Number | None = None
    utilisation: Number | None = None
    memory: Number | None = None
    absent: dict[Text, Text] = some()


class AverageRecord(Record):
    """Validation of the averaged weights; the epoch's record has that of the current weights."""

    validation: MeanEdgeMetrics | None = None
    embedding: EmbeddingMetrics | None = None


class EpochRecord(Record):
    """One epoch. steps: without the `spikes` left out; a time limit may have ended it early.
    seconds: of training; batch_seconds: the median per step. lr: of the last step. imbalance: the
    slowest rank's compute time over the mean. peak_memory_bytes: of the largest rank.
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
        """Returns the number of the epoch, counted from 1."""
        return self.epoch + 1


MetricsRecord = StepRecord | EpochRecord | ValidationRecord


# The key of each kind of record that its scalars are drawn against.
X_AXES = {"step": "step", "epoch": "epoch", "validation": "step"}


def place_of(record: MetricsRecord) -> int:
    """Returns the step or epoch of a record, from 0: the x value at which plots show it."""
    place: int = getattr(record, X_AXES[record.kind])
    return place


def metric_of(metric: str, record: EpochRecord) -> float | None:
    """Returns a metric named as in `training.best.metric`; of averaged weights if there are any."""
    if metric == "train_loss":
        return record.train_loss
    judged = record.average or record
    value: float | None = getattr(judged.validation or judged.embedding, metric, None)
    return value
