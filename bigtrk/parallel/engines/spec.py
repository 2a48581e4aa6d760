"""The facts about an engine that are known without making it: its settings, and how it shards.

Each module `engines/NAME.py` has one `SPEC`. All weights, gradients and moments are float32, so
they are counted in numbers of four bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from torch import nn

from bigtrk.parallel.world import Stopwatch

if TYPE_CHECKING:
    from bigtrk.parallel.engines.engine import Engine
    from bigtrk.parallel.settings import EngineSettings, OptimizerSettings

Level = Literal["none", "optimizer", "gradients", "parameters"]
BYTES = 4


@dataclass(frozen=True)
class Weights:
    """The numbers of weights in the whole model, its largest layer and its largest parameter."""

    total: int
    layer: int
    parameter: int


@dataclass(frozen=True)
class Held:
    """The counts of float32 values (BYTES each) that a rank holds in a pass, without activations.

    buffers: the engine's own. after: what reducing the gradients and updating the weights takes at
    most in addition, when the pass is over and no activations are left.
    """

    parameters: float
    gradients: float
    optimizer: float
    buffers: float = 0.0
    after: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How an engine divides its state over `ranks` ranks: all up to `level` (ZeRO 1, 2, 3), or not.

    name: the engine as people write it. scatters_often: gradients are reduced after every
    micro-step, and not only after a step's last. module_bytes: memory that the engine's Python
    modules take in a process on a CPU.
    """

    name: str
    level: Level
    ranks: int
    scatters_often: bool = False
    module_bytes: int = 0

    @property
    def lockstep(self) -> bool:
        """Whether ranks wait for each other in every micro-step, and not only at a step's end.

        Sharded parameters are gathered layer by layer in each pass, by all ranks together. So all
        ranks must run the same number of passes; a rank without an event runs an empty one.
        """
        return self.level == "parameters"

    def held(self, weights: Weights, on_host: bool) -> Held:  # noqa: ARG002  # ZeRO asks
        """Returns how many float32 values a rank holds for a model; on_host: on a CPU."""
        n, part = weights.total, weights.total / self.ranks
        # AdamW makes two tensors of a parameter's size while it updates the parameter.
        updated = 2 * weights.parameter
        if self.level == "none":
            return Held(n, n, 2 * n, after=updated)
        # A layer is gathered flat and copied from there; its gradients are flattened to be reduced.
        whole = weights.layer * (2 if self.ranks > 1 else 1) if self.lockstep else 0
        return Held(
            parameters=part if self.lockstep else n,
            gradients=n if self.level == "optimizer" else part,
            optimizer=2 * part,
            buffers=whole,
            after=updated / self.ranks,
        )


@dataclass(frozen=True)
class EngineSpec:
    """The facts about an engine that other code reads.

    make: makes the engine from the arguments of `make_engine`; usually its class. sharding: returns
    how it divides its state, from the settings and the number of ranks. options: settings in the
    `engine` section that other engines refuse. whole_matrices: true if each rank updates whole
    matrices, as Muon needs. automatic: true if `training.auto` may choose the engine.
    """

    make: Callable[
        ["EngineSettings", nn.Module, "OptimizerSettings", Stopwatch, Mapping[str, float]], "Engine"
    ]
    sharding: Callable[["EngineSettings", int], Sharding]
    options: tuple[str, ...] = ()
    whole_matrices: bool = False
    automatic: bool = False


def engine_spec(name: str) -> EngineSpec:
    """Returns an engine's specification; importing its module may take a second."""
    spec: EngineSpec = import_module(f"{__package__}.{name}").SPEC
    return spec
