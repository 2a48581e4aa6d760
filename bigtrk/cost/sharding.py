"""The parameters, gradients and optimizer state that each engine keeps, and what it sends.

The memory of DeepSpeed's ZeRO is by what its sources allocate: deepspeed/runtime/zero and
deepspeed/runtime/engine.py of DeepSpeed 0.19.8. All weights, gradients and moments are float32, so
they are counted in numbers of four bytes.
"""

from dataclasses import dataclass
from typing import Literal

from bigtrk.cost.machines import Link, all_gather, all_reduce
from bigtrk.parallel.engines.ds_file import zero_settings
from bigtrk.parallel.settings import EngineSettings

Level = Literal["none", "optimizer", "gradients", "parameters"]
BYTES = 4  # weights, gradients and AdamW's two moments are float32
_STAGES: tuple[Level, ...] = ("none", "optimizer", "gradients", "parameters")


@dataclass(frozen=True)
class Weights:
    """The numbers of a model: in all, in its largest layer, in its largest parameter."""

    total: int
    layer: int
    parameter: int


@dataclass(frozen=True)
class Held:
    """The numbers in the memory of a rank while it computes a pass, without activations.

    buffers: those of the engine beside them. after: what reducing the gradients and updating the
    weights takes at most beyond all of this, when the pass is over and no activations are left.
    """

    parameters: float
    gradients: float
    optimizer: float
    buffers: float = 0.0
    after: float = 0.0


@dataclass(frozen=True)
class Zero:
    """A stage of ZeRO, and the sizes of buffers in its file, in numbers.

    bucket: gradients that are reduced at once, of a smaller model all. reuse: a gathered weight is
    kept if at most so many weights are passed before it is needed again. prefetched: weights that
    are gathered ahead. offload: true if the optimizer's part is in the memory of the host.
    """

    stage: int
    bucket: int
    reuse: int
    prefetched: int
    offload: bool

    def held(self, weights: Weights, ranks: int, on_host: bool) -> Held:
        """Counts what one of `ranks` holds, on a CPU if `on_host`."""
        match self.stage:
            case 0:
                return self._replicated(weights)
            case 1 | 2:
                return self._divided(weights, ranks, on_host)
            case _:
                return self._gathered(weights, ranks, on_host)

    def _replicated(self, weights: Weights) -> Held:
        """Stage 0 flattens all gradients into one tensor to average them."""
        n = weights.total
        return Held(n, n, 2 * n, after=max(n, 2 * weights.parameter))

    def _divided(self, weights: Weights, ranks: int, on_host: bool) -> Held:
        """Stages 1 and 2 update a float32 copy of this rank's part, and have AdamW's moments of it.

        A bucket collects the gradients, at once (stage 2) or at the step's end (stage 1). It is
        flattened into another to be reduced; this rank's part of that is flattened again for AdamW,
        which makes two tensors of its size.
        """
        n, part, copied = weights.total, weights.total / ranks, min(weights.total, self.bucket)
        gradients = n if self.stage == 1 else min(n, copied + part)
        # A system gives memory only to the part of a CPU's buffer that is written.
        unwritten = 0 if on_host or self.stage == 2 else copied
        return Held(
            parameters=n,
            gradients=gradients,
            optimizer=3 * part,
            buffers=unwritten,
            after=max(copied, 3 * part - gradients),
        )

    def _gathered(self, weights: Weights, ranks: int, on_host: bool) -> Held:
        """Stage 3 keeps a bucket and this rank's part of the gradients from the first step on.

        A weight is gathered once and stays whole until the pass has moved on by `reuse` numbers; it
        moves past the others twice, forward and backward, between two uses of one. Weights gathered
        together are copied once more, and so is a bucket to be reduced, by DeepSpeed and by gloo.
        """
        n, part, copied = weights.total, weights.total / ranks, min(weights.total, self.bucket)
        whole, ahead = 0, 0
        if ranks > 1:
            whole = min(n, max(self.reuse // 2, self.prefetched + weights.layer))
            ahead = min(n, self.prefetched)
        own_gradients = part * (2 if self.offload else 1)
        # AdamW makes two tensors of its part's size, beside the gradients flattened for it.
        updated = part * (2 if self.offload else 3)
        reduced = copied * (2 if on_host else 1)
        return Held(
            parameters=part + whole,
            gradients=own_gradients + copied,
            optimizer=3 * part,
            after=max(ahead, reduced - whole, updated - whole, 0),
        )


def read_zero(name: str) -> Zero:
    """Reads the buffers of a shipped DeepSpeed file ("zero1") or of one's own.

    Raises:
        InputError: the file cannot be read.
    """
    section = zero_settings(name)
    return Zero(
        stage=int(section.stage),
        bucket=section.reduce_bucket_size,
        reuse=section.max_reuse_distance,
        prefetched=section.prefetch_bucket_size,
        offload=section.offload_optimizer is not None,
    )


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
        """Whether ranks wait for each other in every micro-step, and not only at a step's end.

        Sharded parameters are gathered layer by layer in each pass, by all ranks together, so all
        must run the same number of passes; a rank without an event runs an empty one.
        """
        return self.level == "parameters"

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

    def seconds(self, link: Link, world: int, weights: int, micro_steps: int, passes: int) -> float:
        """Returns the seconds over `link` of a step's reductions and of gathering sharded state.

        passes: those of all micro-steps.
        """
        if self.level == "none":
            return all_reduce(link, world, BYTES * weights)
        # Gradients are scattered: by ZeRO from stage 2 on after every micro-step, else once.
        scattered = micro_steps if self.zero and self.level != "optimizer" else 1
        # The updated weights are gathered; where parameters are sharded they are gathered in every
        # forward and backward pass instead.
        gathered = 2 * passes if self.level == "parameters" else 1
        return (scattered + gathered) * all_gather(link, world, BYTES * weights)


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
