"""The records of a run folder, as the trainer writes them.

What a record does not know is None; keys of a later version are left aside.
"""

from typing import Any

from pydantic import ConfigDict, Field

from bigtrk.config import Settings


class Record(Settings):
    """Immutable; unlike a configuration it tolerates keys that it does not know."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class DataRecord(Record):
    """What was trained."""

    train_events: int | None = None
    validation_events: int | None = None
    nodes: int | None = None
    edges: int | None = None


class MachineRecord(Record):
    """The host of rank 0."""

    host: str | None = None
    cpu: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    accelerator: str | None = None


class RunRecord(Record):
    """`run.json`: written once, when training starts. `parameters` counts the trainable ones."""

    bigtrk: str | None = None
    git: str | None = None
    software: dict[str, str | None] = Field(default_factory=dict)
    machine: MachineRecord = MachineRecord()
    started: str | None = None
    launcher: str | None = None
    world_size: int = Field(ge=1)
    engine: str
    engine_detail: str | None = None
    parameters: int | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    data: DataRecord = DataRecord()


class NormsRecord(Record):
    """Euclidean norms by part of the model: of a step's gradients before clipping, of the weights
    before the update; None where not finite.
    """

    gradient: dict[str, float | None] = Field(default_factory=dict)
    weight: dict[str, float | None] = Field(default_factory=dict)


class StepRecord(Record):
    """One optimizer step; `step` counts from the start of the run.

    `micro_steps`: how many events or sectors each rank had one after another. `routes`: in how many
    sectors each event was trained, by name. `imbalance`: the most loaded rank's predicted seconds
    over the mean's. A `spike` was left out of the training. `loss` is that of edges, `pt_loss` the
    auxiliary one, before its weight.
    """

    epoch: int
    step: int
    loss: float | None = None
    pt_loss: float | None = None
    lr: float | None = None
    events: int | None = None
    edges: int | None = None
    micro_steps: int | None = None
    routes: dict[str, int] = Field(default_factory=dict)
    imbalance: float | None = None
    norms: NormsRecord | None = None
    spike: bool = False
    seconds: float | None = None


class EdgeMetrics(Record):
    """Means over events of per-event ratios in [0, 1] and of the absolute error of log pT, and
    numbers of edges over all events.

    events_skipped: how many events at least one mean leaves out, since their ratio is undefined.
    """

    loss: float | None = None
    efficiency: float | None = None
    target_purity: float | None = None
    total_purity: float | None = None
    purity: float | None = None
    auc: float | None = None
    log_pt_error: float | None = None
    events_skipped: float | None = None
    events_without_auc: float | None = None
    n_target: int | None = None
    n_predicted: int | None = None
    n_found: int | None = None
    n_true_predicted: int | None = None


class ValidationRecord(Record):
    """Validation on the way; `seconds` of training until then, from the start or a resumption."""

    step: int
    seconds: float
    validation: EdgeMetrics | None = None


class Shares(Record):
    """Shares of the mean rank's time; they sum to 1."""

    exchange: float
    compute: float
    reduce: float
    data: float


class PowerRecord(Record):
    """Of an epoch: energy of all accelerators and of all hosts; mean shares of time that a kernel
    ran and of memory in use. What was not read is None; `absent` says why, by kind of device.
    """

    accelerator_joules: float | None = None
    host_joules: float | None = None
    utilisation: float | None = None
    memory: float | None = None
    absent: dict[str, str] = Field(default_factory=dict)


class EpochRecord(Record):
    """One epoch; `seconds` is its training part, `batch_seconds` the median step. What it counts
    are the steps trained, without the `spikes` left out; time may have ended before all that were
    planned.

    `imbalance` is the slowest rank's compute time over the mean's, `peak_memory_bytes` the
    largest rank's.
    """

    epoch: int
    steps: int | None = None
    spikes: int | None = None
    planned_steps: int | None = None
    events: int | None = None
    edges: int | None = None
    train_loss: float | None = None
    seconds: float | None = None
    edges_per_second: float | None = None
    batch_seconds: float | None = None
    shares: Shares | None = None
    imbalance: float | None = None
    peak_memory_bytes: int | None = None
    power: PowerRecord = PowerRecord()
    validation: EdgeMetrics | None = None
