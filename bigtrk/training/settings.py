"""The configuration tree of a training run."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from bigtrk.config import Settings
from bigtrk.graphs.target import Target
from bigtrk.models.settings import InteractionGNNConfig, ModelConfig
from bigtrk.parallel.heartbeat import ANSWERS, Patience
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.training.steps.batching import Batching


class DataSettings(Settings):
    """Folders of graphs (`bigtrk build`) and of sectors (`python -m partition`).

    An event found in both is trained in sectors. `validation` is either the number of events held
    back from the end of `train` (by name), or folders of their own. `events`: how many of the
    events of `train` that are not held back are trained on, the first by name; all without it.
    `sectors`: `halo` exchanges halos and trains as the whole graph does; `naive` trains each sector
    alone, leaves cut edges out and scores them as false.
    """

    train: list[Path] = Field([Path("graphs")], min_length=1)
    validation: int | list[Path] = 1
    events: int | None = Field(None, ge=1, lt=2**31)
    sectors: Literal["halo", "naive"] = "halo"
    node_features: list[str] = Field(["r", "phi", "z", "eta"], min_length=1, max_length=64)
    edge_features: list[str] = Field(
        ["dr", "dphi", "dz", "deta", "phislope", "rphislope"], min_length=1, max_length=64
    )

    @property
    def feature_counts(self) -> tuple[int, int]:
        """Numbers of node and of edge features."""
        return len(self.node_features), len(self.edge_features)


class SamplingSettings(Settings):
    """Training on parts of events, one after another, instead of whole events (`none`).

    `shadow`: a step trains on the ShaDow subgraphs of `batch_size` nodes of one event, shared out
    among the ranks: what `depth` hops reach along `fanout` edges of a node at most (Tripathy et
    al.). `bulk` mini-batches are sampled at once. `sectors`: a step trains `training.events_per_
    step` of the sectors that events are stored in; `data.sectors=halo` computes a sector's halo
    too, as far as the sector alone allows, `naive` leaves it and its edges out. Validation is of
    whole events.
    """

    method: Literal["none", "shadow", "sectors"] = "none"
    depth: int = Field(3, ge=1, lt=2**31)
    fanout: int = Field(6, ge=1, lt=2**31)
    batch_size: int = Field(256, ge=1, lt=2**31)
    bulk: int = Field(8, ge=1, lt=2**31)


class TrainingSettings(Settings):
    """`events_per_step` events make one optimizer step, on however many ranks.

    class_balance: `proportional` divides an event's loss by its number of edges, `equal` divides
    true and false edges each by their own number. step_loss: the mean over the step's events
    (`per_event`, as acorn) or over all its edges (`per_edge`).

    batching: which events make a step: any (`random`), events of like cost (`buckets`), so that
    ranks end a step together, or large ones with small ones (`cost`), so that steps take equally
    long. The cost is the number of operations that nodes and edges are predicted to take.

    routing: `automatic` trains each event in as many of its sectors as fit `memory_gib` (GiB of
    each rank; without it, what the rank has) and end the step soonest; `stored` in all its sectors,
    or as many as there are ranks for.

    minutes: end the run after so many minutes of training (validation not counted).
    validate_minutes: validate that often, too, and not only after each epoch.

    checkpoint_every: write a checkpoint after as many steps, too, and not only after each epoch and
    when the time is up.

    norms_every: how many steps apart the norms of gradients and weights are recorded, by part of
    the model; 0 for never.

    pt_weight: of the auxiliary loss, the smooth L1 loss of the log of pT predicted for true edges;
    0 for none, and a model without that head.

    spike_guard: what becomes of a step whose loss is far above that of recent steps, or whose loss
    or gradients are not finite. `skip` drops its gradients; `roll_back` returns to the last
    checkpoint and goes on from there without that step; `off` trains on it, and stops at a
    loss that is not finite. spike_threshold: how many median absolute deviations above the median
    is far.
    """

    epochs: int = Field(10, ge=1, lt=2**31)
    events_per_step: int = Field(1, ge=1, lt=2**31)
    batching: Batching = "random"
    seed: int = Field(0, ge=0, lt=2**63)  # what torch takes
    class_balance: Literal["proportional", "equal"] = "proportional"
    step_loss: Literal["per_event", "per_edge"] = "per_event"
    edge_cut: float = Field(0.5, gt=0, lt=1)
    routing: Literal["automatic", "stored"] = "automatic"
    memory_gib: float | None = Field(None, gt=0)
    minutes: float | None = Field(None, gt=0)
    validate_minutes: float | None = Field(None, gt=0)
    checkpoint_every: int | None = Field(None, ge=1, lt=2**31)
    norms_every: int = Field(10, ge=0, lt=2**31)
    pt_weight: float = Field(0.0, ge=0)
    spike_guard: Literal["off", "skip", "roll_back"] = "off"
    spike_threshold: float = Field(10.0, gt=0)


class RunSettings(Settings):
    """Where the run's record goes; without `folder` the next free number under `runs/`.

    loggers: what else gets it, scalar by scalar. price_per_device_hour: what a rank's device costs,
    for reports; it changes no training.

    While the others wait for it, a rank ends the run that says nothing for `silent_seconds` or is
    in one and the same operation for `stalled_seconds` (parallel/watchdog.py). At the start, a run
    ends to which no further rank has come for `silent_seconds`: raise it where some take longer to
    start than others, as with imports from a slow file system (parallel/meeting.py).
    """

    folder: Path | None = None
    loggers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    price_per_device_hour: float | None = Field(None, ge=0)
    silent_seconds: float = Field(Patience.silent, gt=ANSWERS, le=1e9)
    stalled_seconds: float = Field(Patience.stalled, gt=ANSWERS)

    @property
    def patience(self) -> Patience:
        """With ranks that keep others waiting."""
        return Patience(self.silent_seconds, self.stalled_seconds)


class Configuration(Settings):
    """Everything that decides a run's result, and where it is written.

    profile: also write a trace of a few steps (training/monitoring/profiling.py).
    """

    data: DataSettings = DataSettings()
    model: ModelConfig = InteractionGNNConfig()
    target: Target = Target()
    engine: EngineSettings = EngineSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    sampling: SamplingSettings = SamplingSettings()
    training: TrainingSettings = TrainingSettings()
    run: RunSettings = RunSettings()
    profile: bool = False

    @model_validator(mode="after")
    def _steps_of_one_event(self) -> Self:
        if self.sampling.method == "shadow" and self.training.events_per_step > 1:
            raise ValueError(
                "with sampling.method=shadow a step is of one event: set training.events_per_step=1"
                " and sampling.batch_size"
            )
        return self

    @model_validator(mode="after")
    def _head_of_the_model(self) -> Self:
        if self.training.pt_weight > 0 and not self.model.has_pt_head:
            raise ValueError(
                f"training.pt_weight: {self.model.name} has no head for pT; set it to 0, or "
                f"model.name=interaction"
            )
        return self
