"""FSDP2: parameters, gradients and optimizer state sharded over all ranks or blocks of them."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from bigtrk.errors import InputError
from bigtrk.models.protocol import units
from bigtrk.parallel.engines.engine import (
    Piece,
    Shard,
    TorchEngine,
    even_share,
    flat_values,
    share_weights,
)
from bigtrk.parallel.engines.optimizers import STATE, adam_state
from bigtrk.parallel.engines.spec import EngineSpec, Sharding
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.world import Stopwatch

# Logits are a view of the last layer's column, and nothing here modifies them in place.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view", module="torch")


class FSDP2Engine(TorchEngine):
    """PyTorch's fully_shard: a layer's parameters are whole only while that layer is computed.

    Between the micro-steps of a step each rank holds gradients of the whole model, which are
    reduced once, after the last. Gathers and reductions run within the passes, so a run's shares of
    time count them as "compute".
    """

    def __init__(
        self,
        settings: EngineSettings,
        model: nn.Module,
        optimizer: OptimizerSettings,
        _: Stopwatch,
        lr_factors: Mapping[str, float],
    ) -> None:
        """Shards `model`; InputError if `shard_ranks` does not divide the world. Collective."""
        from torch.distributed.fsdp import fully_shard  # imports torch's compiler

        world, shards = dist.get_world_size(), settings.shard_ranks or dist.get_world_size()
        if world % shards:
            raise InputError(
                f"engine.shard_ranks={shards}: must divide the number of ranks, {world}; choose a "
                f"divisor of it, or leave it out to shard the weights over all ranks"
            )
        # Neighbours share a block, and all blocks hold the same.
        self._shards = shards
        self._block, self._place = divmod(dist.get_rank(), shards)
        names = ("replicate", "shard") if settings.shard_ranks else None
        shape = (world // shards, shards) if names else (world,)
        device = next(model.parameters()).device.type
        mesh = init_device_mesh(device, shape, mesh_dim_names=names)
        share_weights(model)
        for unit in units(model):
            fully_shard(unit, mesh=mesh)
        # By default the model's own parameters, outside of its units, stay whole after a pass
        # without a backward pass, such as a validation; and a checkpoint is of shards.
        self._sharded = fully_shard(model, mesh=mesh, reshard_after_forward=True)
        super().__init__(model, optimizer, lr_factors)

    @contextmanager
    def micro_step(self, last: bool) -> Iterator[None]:
        self._sharded.set_requires_gradient_sync(last)
        yield

    def shards(self) -> Iterator[Shard]:
        """Yields all parameters; only the first block's have values, as all blocks are alike."""
        for name, parameter in self.model.named_parameters():
            if self._block == 0:
                gradient = None if parameter.grad is None else _local(parameter.grad)
                yield Shard(name, _local(parameter), gradient)
            else:
                yield Shard(name)

    def pieces(self) -> Iterator[Piece]:
        blocks = dist.get_world_size() // self._shards
        for name, parameter in self.model.named_parameters():
            state = adam_state(self._optimizer, parameter)
            values = flat_values(_local(parameter), {kind: _local(state[kind]) for kind in STATE})
            shape, rows = tuple(parameter.shape), parameter.shape[0]
            # fully_shard deals rows out like torch.chunk.
            first_row = min(-(-rows // self._shards) * self._place, rows)
            start = first_row * parameter.shape[1:].numel()
            written = even_share(len(values["weight"]), self._block, blocks)
            yield Piece(name, shape, start, values, state["step"], written)

    def weights(self) -> dict[str, Tensor]:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        # A model's state dict may also hold other things than tensors; ours does not.
        return cast(dict[str, Tensor], get_model_state_dict(self.model, options=options))


def _local(value: Tensor) -> Tensor:
    """Returns this rank's part of a sharded tensor."""
    from torch.distributed.tensor import DTensor

    assert isinstance(value, DTensor), "fully_shard shards every parameter"
    local: Tensor = value.to_local()
    return local


def _sharding(settings: EngineSettings, ranks: int) -> Sharding:
    shards = settings.shard_ranks
    return Sharding(
        name=f"FSDP2 in blocks of {shards}" if shards else "FSDP2",
        level="parameters",
        ranks=min(shards or ranks, ranks),
        module_bytes=72 * 2**20,
    )


SPEC = EngineSpec(FSDP2Engine, _sharding, ("shard_ranks",), automatic=True)
