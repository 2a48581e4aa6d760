"""The parameters, gradients and optimizer state that each engine keeps, and what it sends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bigtrk.cost.links import Link, all_gather, all_reduce
from bigtrk.cost.rates import EngineKind
from bigtrk.cost.zero_memory import Held, Weights, Zero, read_zero
from bigtrk.parallel.settings import EngineSettings

Level = Literal["none", "optimizer", "gradients", "parameters"]
BYTES = 4  # weights, gradients and AdamW's two moments are float32
_STAGES: tuple[Level, ...] = ("none", "optimizer", "gradients", "parameters")


@dataclass(frozen=True)
class Sharding:
    """The state divided over `ranks` ranks: nothing, or everything up to `level` (ZeRO 1, 2, 3).

    zero: the buffers that DeepSpeed's file sets; None for torch's own engines.
    """

    name: str
    level: Level
    ranks: int
    zero: Zero | None = None

    @property
    def lockstep(self) -> bool:
        """Says whether ranks wait for each other in every micro-step, and not only at a step's end.

        Sharded parameters are gathered layer by layer in each pass, by all ranks together, so all
        must run the same number of passes; a rank without an event runs an empty one.
        """
        return self.level == "parameters"

    @property
    def kind(self) -> EngineKind | None:
        """Returns the engine whose steps were measured for those of this one; None for DDP's."""
        if self.zero is None:
            return "fsdp2" if self.lockstep else None
        return "zero3" if self.lockstep else "zero1"

    def held(self, weights: Weights, on_host: bool) -> Held:
        """Counts what a rank holds of a model's weights, on a CPU if `on_host`."""
        if self.zero:
            return self.zero.held(weights, self.ranks, on_host)
        n, part = weights.total, weights.total / self.ranks
        if self.level == "none":
            # AdamW makes two tensors of a parameter's size while it updates the parameter.
            return Held(n, n, 2 * n, after=2 * weights.parameter)
        # A layer is gathered flat and copied from there; its gradients are flattened to be reduced.
        whole = weights.layer * (2 if self.ranks > 1 else 1)
        after = 2 * weights.parameter / self.ranks
        return Held(part, part, 2 * part, buffers=whole, after=after)

    def seconds(
        self,
        link: Link,
        world: int,
        weights: int,
        called: Sequence[int],
        micro_steps: int,
        passes: int,
    ) -> float:
        """Returns the seconds over `link` of a step's reductions and of gathering sharded state.

        weights: all of them. called: those of each layer, as a pass calls it. passes: those of all
        micro-steps.
        """
        if self.level == "none":
            return all_reduce(link, world, BYTES * weights)
        # Gradients are scattered: by ZeRO from stage 2 on after every micro-step, else once.
        scattered = micro_steps if self.zero and self.level != "optimizer" else 1
        # The updated weights are gathered; where parameters are sharded each layer is gathered in
        # every forward and backward pass instead.
        if self.level != "parameters":
            return (scattered + 1) * all_gather(link, world, BYTES * weights)
        gathered = sum(all_gather(link, world, BYTES * layer) for layer in called)
        return (scattered + 2 * passes) * gathered


def sharding(engine: EngineSettings, world: int) -> Sharding:
    """Returns the sharding of a configured engine.

    Raises:
        InputError: the DeepSpeed file cannot be read.
    """
    if engine.name == "ddp":
        return Sharding("DDP, coalesced" if engine.coalesced else "DDP", "none", world)
    if engine.name == "fsdp2":
        return Sharding("FSDP2", "parameters", min(engine.shard_ranks or world, world))
    zero = read_zero(engine.ds_config)
    return Sharding(f"ZeRO-{zero.stage}", _STAGES[zero.stage], world, zero)
