"""The configuration tree of a training run."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from bigtrk.config import Settings
from bigtrk.graphs.target import Target
from bigtrk.models.settings import InteractionGNNConfig, ModelConfig
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings


class DataSettings(Settings):
    """Folders of graphs (`bigtrk build`) and of sectors (`python -m partition`).

    An event found in both is trained in sectors. `validation` is either the number of events held
    back from the end of `train` (by name), or folders of their own. `sectors`: `halo` exchanges
    halos and trains as the whole graph does; `naive` trains each sector alone, leaves cut edges
    out and scores them as false.
    """

    train: list[Path] = Field([Path("graphs")], min_length=1)
    validation: int | list[Path] = 1
    sectors: Literal["halo", "naive"] = "halo"
    node_features: list[str] = Field(["r", "phi", "z", "eta"], min_length=1)
    edge_features: list[str] = Field(
        ["dr", "dphi", "dz", "deta", "phislope", "rphislope"], min_length=1
    )


class TrainingSettings(Settings):
    """`events_per_step` events make one optimizer step, on however many ranks.

    class_balance: `proportional` divides an event's loss by its number of edges, `equal` divides
    true and false edges each by their own number. step_loss: the mean over the step's events
    (`per_event`, as acorn) or over all its edges (`per_edge`).

    routing: `automatic` trains each event in as many of its sectors as fit `memory_gib` (GiB of
    each rank; without it, what the rank has) and end the step soonest; `stored` in all its sectors,
    or as many as there are ranks for.

    norms_every: how many steps apart the norms of gradients and weights are recorded, by part of
    the model; 0 for never.

    spike_guard: what becomes of a step whose loss is far above that of recent steps, or whose loss
    or gradients are not finite. `skip` drops its gradients; `roll_back` returns to the last
    checkpoint and trains the epoch again without that step; `off` trains on it, and stops at a
    loss that is not finite. spike_threshold: how many median absolute deviations above the median
    is far.
    """

    epochs: int = Field(10, ge=1)
    events_per_step: int = Field(1, ge=1)
    seed: int = Field(0, ge=0)
    class_balance: Literal["proportional", "equal"] = "proportional"
    step_loss: Literal["per_event", "per_edge"] = "per_event"
    edge_cut: float = Field(0.5, gt=0, lt=1)
    routing: Literal["automatic", "stored"] = "automatic"
    memory_gib: float | None = Field(None, gt=0)
    norms_every: int = Field(10, ge=0)
    spike_guard: Literal["off", "skip", "roll_back"] = "off"
    spike_threshold: float = Field(10.0, gt=0)


class RunSettings(Settings):
    """Where the run's record goes; without `folder` the next free number under `runs/`."""

    folder: Path | None = None


class Configuration(Settings):
    """Everything that decides a run's result, and where it is written.

    profile: also write a trace of a few steps (training/profiling.py).
    """

    data: DataSettings = DataSettings()
    model: ModelConfig = InteractionGNNConfig()
    target: Target = Target()
    engine: EngineSettings = EngineSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    training: TrainingSettings = TrainingSettings()
    run: RunSettings = RunSettings()
    profile: bool = False
