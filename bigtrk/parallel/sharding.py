"""What each engine keeps of parameters, gradients and optimizer state, and what it sends."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn

from bigtrk.errors import InputError
from bigtrk.parallel.ds_file import zero_stage
from bigtrk.parallel.links import Link, all_gather, all_reduce
from bigtrk.parallel.settings import EngineSettings

Level = Literal["none", "optimizer", "gradients", "parameters"]
BYTES = 4  # weights, gradients and AdamW's two moments are float32
_STAGES: tuple[Level, ...] = ("none", "optimizer", "gradients", "parameters")


@dataclass(frozen=True)
class Sharding:
    """What is divided over `ranks` ranks: nothing, or everything up to `level` (ZeRO 1, 2, 3).

    copies: whole copies of the gradients beside the parameters' own (DDP's buckets).
    master: whether the engine keeps a flat copy of the weights it updates (DeepSpeed).
    """

    name: str
    level: Level
    ranks: int
    copies: int = 0
    master: bool = False
    deepspeed: bool = False

    @property
    def in_step(self) -> bool:
        """Whether ranks wait for each other in every micro-step, and not only at the end of a step.

        Sharded parameters are gathered layer by layer in each pass, by all ranks together, so all
        must run the same number of passes; a rank without an event runs an empty one.
        """
        return self.level == "parameters"

    def _share(self, level: Level) -> float:
        divided = _STAGES.index(self.level) >= _STAGES.index(level)
        return 1 / self.ranks if divided else 1.0

    def parameters(self, weights: int, widest: int) -> float:
        """Bytes of parameters, with the one layer that is whole while it is computed."""
        share = self._share("parameters")
        gathered = widest if share < 1 else 0
        return BYTES * (weights * share + gathered)

    def gradients(self, weights: int) -> float:
        return BYTES * weights * (self._share("gradients") + self.copies)

    def optimizer(self, weights: int) -> float:
        return BYTES * weights * (2 + self.master) * self._share("optimizer")

    def seconds(self, link: Link, world: int, weights: int, layers: int) -> float:
        """Seconds of a step's reductions, and of gathering what is sharded, over `link`."""
        if self.level == "none":
            return all_reduce(link, world, BYTES * weights)
        # Gradients are scattered and the updated weights gathered; where parameters are sharded
        # each layer is gathered in forward and backward instead.
        if self.level != "parameters":
            return 2 * all_gather(link, world, BYTES * weights)
        return 3 * layers * all_gather(link, world, BYTES * weights / layers)


def units(model: nn.Module) -> Iterator[nn.Module]:
    """What is gathered at once where parameters are sharded: each child of `model`, and each item
    of a list of them.
    """
    for child in model.children():
        yield from child if isinstance(child, nn.ModuleList) else [child]


def sharding(engine: EngineSettings, world: int) -> Sharding:
    """The sharding of a configured engine.

    Raises:
        InputError: the DeepSpeed file cannot be read.
    """
    if engine.name == "ddp" and engine.coalesced:
        return Sharding("DDP, coalesced", "none", world)  # its gradients are the buffer
    if engine.name == "ddp":
        return Sharding("DDP", "none", world, copies=1)
    if engine.name == "fsdp2":
        return Sharding("FSDP2", "parameters", min(engine.shard_ranks or world, world))
    return _zero(zero_stage(engine.ds_config), world)


def named_sharding(name: str, world: int) -> Sharding:
    """The sharding of "ddp", "zero0" to "zero3" or "fsdp2".

    Raises:
        InputError: there is no such engine.
    """
    zero = re.fullmatch(r"zero([0-3])", name)
    if zero:
        return _zero(int(zero[1]), world)
    if name not in ("ddp", "fsdp2"):
        raise InputError(f"engine {name!r}: choose ddp, zero0, zero1, zero2, zero3 or fsdp2")
    return sharding(EngineSettings(name="ddp" if name == "ddp" else "fsdp2"), world)


def _zero(stage: int, world: int) -> Sharding:
    return Sharding(
        f"ZeRO-{stage}", _STAGES[stage], world, copies=1, master=stage > 0, deepspeed=True
    )
