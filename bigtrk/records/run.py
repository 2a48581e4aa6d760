"""The records of a run folder, as the trainer writes them.

What a record does not know is None; keys of a later version are left aside. Folders come from
anywhere, so values are those that reports can compute with.
"""

from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from bigtrk.config import Count, Settings
from bigtrk.records.quantities import (
    Loss,
    Measure,
    Number,
    Parts,
    Place,
    Ranks,
    Ratio,
    Text,
    some,
)


class Record(Settings):
    """Immutable; unlike a configuration it tolerates keys that it does not know."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class DataRecord(Record):
    """What was trained."""

    train_events: Count | None = None
    validation_events: Count | None = None
    nodes: Count | None = None
    edges: Count | None = None


class MachineRecord(Record):
    """The host of rank 0."""

    host: Text | None = None
    cpu: Text | None = None
    cores: Count | None = None
    memory_bytes: Count | None = None
    accelerator: Text | None = None


class RunRecord(Record):
    """`run.json`: written once, when training starts. `parameters` counts the trainable ones."""

    bigtrk: Text | None = None
    git: Text | None = None
    software: dict[Text, Text | None] = some()
    machine: MachineRecord = MachineRecord()
    started: Text | None = None
    launcher: Text | None = None
    world_size: Ranks
    engine: Text
    engine_detail: Text | None = None
    parameters: Count | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    data: DataRecord = DataRecord()


class NormsRecord(Record):
    """Euclidean norms by part of the model: of a step's gradients before clipping, of the weights
    before the update; None where not finite.
    """

    gradient: dict[Text, Number | None] = some()
    weight: dict[Text, Number | None] = some()


class StepRecord(Record):
    """One optimizer step; `step` counts from the start of the run.

    `micro_steps`: how many events or sectors each rank had one after another. `routes`: in how many
    sectors each event was trained, by name. `imbalance`: the most loaded rank's predicted seconds
    over the mean's. A `spike` was left out of the training. `loss` is that of edges, `pt_loss` the
    auxiliary one, before its weight.
    """

    epoch: Place
    step: Place
    loss: Loss | None = None
    pt_loss: Loss | None = None
    lr: Number | None = None
    events: Count | None = None
    edges: Count | None = None
    micro_steps: Count | None = None
    routes: dict[Text, Parts] = Field(default_factory=dict)
    imbalance: Number | None = None
    norms: NormsRecord | None = None
    spike: bool = False
    seconds: Measure | None = None


class EdgeMetrics(Record):
    """Means over events of per-event ratios in [0, 1] and of the absolute error of log pT, and
    numbers of edges over all events.

    events_skipped: how many events at least one mean leaves out, since their ratio is undefined.
    """

    loss: Loss | None = None
    efficiency: Ratio | None = None
    target_purity: Ratio | None = None
    total_purity: Ratio | None = None
    purity: Ratio | None = None
    auc: Number | None = None
    log_pt_error: Number | None = None
    events_skipped: Number | None = None
    events_without_auc: Number | None = None
    n_target: Count | None = None
    n_predicted: Count | None = None
    n_found: Count | None = None
    n_true_predicted: Count | None = None

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        """Each of these edges is among the next."""
        chains = (
            (self.n_found, self.n_true_predicted, self.n_predicted),
            (self.n_found, self.n_target),
        )
        for chain in chains:
            known = [count for count in chain if count is not None]
            if known != sorted(known):
                raise ValueError(
                    "of the edges n_found are among n_true_predicted, these among n_predicted, and "
                    "n_found among n_target"
                )
        return self


class ValidationRecord(Record):
    """Validation on the way; `seconds` of training until then, from the start or a resumption."""

    step: Place
    seconds: Measure
    validation: EdgeMetrics | None = None


class Shares(Record):
    """Shares of the mean rank's time; they sum to 1."""

    exchange: Number
    compute: Number
    reduce: Number
    data: Number


class PowerRecord(Record):
    """Of an epoch: energy of all accelerators and of all hosts; mean shares of time that a kernel
    ran and of memory in use. What was not read is None; `absent` says why, by kind of device.
    """

    accelerator_joules: Number | None = None
    host_joules: Number | None = None
    utilisation: Number | None = None
    memory: Number | None = None
    absent: dict[Text, Text] = some()


class EpochRecord(Record):
    """One epoch; `seconds` is its training part, `batch_seconds` the median step. What it counts
    are the steps trained, without the `spikes` left out; time may have ended before all that were
    planned.

    `imbalance` is the slowest rank's compute time over the mean's, `peak_memory_bytes` the
    largest rank's.
    """

    epoch: Place
    steps: Count | None = None
    spikes: Count | None = None
    planned_steps: Count | None = None
    events: Count | None = None
    edges: Count | None = None
    train_loss: Loss | None = None
    seconds: Measure | None = None
    edges_per_second: Measure | None = None
    batch_seconds: Measure | None = None
    shares: Shares | None = None
    imbalance: Number | None = None
    peak_memory_bytes: Count | None = None
    power: PowerRecord = PowerRecord()
    validation: EdgeMetrics | None = None
