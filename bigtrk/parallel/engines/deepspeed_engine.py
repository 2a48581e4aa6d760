"""DeepSpeed ZeRO 0 to 3: optimizer state, gradients and parameters sharded over the world.

Attributes of DeepSpeed that are not documented are read only here.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

import deepspeed
import deepspeed.comm as deepspeed_comm
import torch
import torch.distributed as dist
from deepspeed.comm.comm import comms_logger, timers
from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
from deepspeed.runtime.zero.utils import ZERO_SUPPORTED_OPTIMIZERS
from deepspeed.utils import safe_get_local_fp32_param, safe_get_local_grad
from torch import Tensor, nn

from bigtrk.errors import AGAINST_DIVERGENCE, InputError
from bigtrk.parallel.engines.ddp import replica_pieces
from bigtrk.parallel.engines.engine import Engine, Piece, Shard, flat_values
from bigtrk.parallel.engines.optimizers import AdamW, adam_state, make_optimizer, set_rates
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.parallel.world import Stopwatch

# DeepSpeed 0.19.8 calls what torch 2.13 has renamed, at every step.
warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
# It knows optimizers by their class; this one computes as torch's.
ZERO_SUPPORTED_OPTIMIZERS.append(AdamW)


class DeepSpeedEngine(Engine):
    """A DeepSpeed engine around AdamW.

    It gets neither `mpu` nor `mesh_param`, which make trainings diverge silently (measured with
    0.19.8). Instead gradients are averaged over the whole world, and the loss is scaled.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: OptimizerSettings,
        stopwatch: Stopwatch,
        lr_factors: Mapping[str, float],
        ds_config: dict[str, Any],
    ) -> None:
        deepspeed.utils.logger.setLevel(logging.ERROR)
        # Spares ranks on CPUs the compilation of an operation that DeepSpeed's inference calls; the
        # package's name `torch` is torch itself by now.
        vars(import_module("deepspeed.comm.torch"))["build_shm_op"] = lambda: None
        deepspeed.init_distributed(dist_init_required=False, verbose=False)
        self.model = self._engine = deepspeed.initialize(
            model=model,
            optimizer=make_optimizer(model, optimizer, lr_factors),
            config=ds_config,
            dist_init_required=False,
        )[0]
        self._stopwatch = stopwatch
        deepspeed_comm.configure(enabled=True, prof_all=True, verbose=False, debug=False)

    @property
    def stage(self) -> int:
        return int(self._engine.zero_optimization_stage())

    @contextmanager
    def micro_step(self, last: bool) -> Iterator[None]:
        self._engine.set_gradient_accumulation_boundary(last)
        yield

    def backward(self, loss: Tensor) -> None:
        self._engine.backward(loss, scale_wrt_gas=False)

    def step(self, lr: float) -> None:
        set_rates(self._engine.optimizer, lr)
        self._engine.step()
        # The time in DeepSpeed's own collectives since the last step.
        milliseconds = sum(timer.elapsed(reset=True) for timer in timers.get_timers().values())
        comms_logger.comms_dict.clear()
        self._stopwatch.add("reduce", float(milliseconds) / 1000)
        if not self._engine.was_step_applied():
            # All ranks raise: ZeRO's norm covers all gradients. It would continue without the step.
            raise InputError(f"a gradient became NaN or infinite; {AGAINST_DIVERGENCE}")

    def discard(self) -> None:
        if self.stage == 0:
            self._engine.zero_grad()
            return
        # ZeRO clears its buffers without a step when the norm of the gradients is not finite.
        optimizer, infinite = self._engine.optimizer, torch.tensor(torch.inf)
        method = "_get_norm_groups" if self.stage == 3 else "scaled_global_norm"
        setattr(optimizer, method, lambda: [infinite] if self.stage == 3 else infinite)
        self._engine.step()
        delattr(optimizer, method)
        assert not self._engine.was_step_applied(), "ZeRO took a step that was to be dropped"

    def shards(self) -> Iterator[Shard]:
        """Yields this rank's part of each parameter; at ZeRO-0 only rank 0 has values."""
        for name, parameter in self._engine.module.named_parameters():
            if self.stage == 3:
                yield _third_stage_shard(name, parameter)
            elif self.stage > 0:
                yield _flat_shard(name, parameter)
            elif dist.get_rank() == 0:
                yield Shard(name, parameter, parameter.grad)
            else:
                yield Shard(name)

    def pieces(self) -> Iterator[Piece]:
        """Yields the optimizer's own copy, which is written, and the weights the model reads."""
        module, optimizer = self._engine.module, self._engine.optimizer
        if self.stage == 0:
            world_size = dist.get_world_size()
            yield from replica_pieces(module, optimizer, dist.get_rank(), world_size)
            return
        for name, parameter in module.named_parameters():
            yield from (_third_stage if self.stage == 3 else _flat)(name, parameter, optimizer)

    def weights(self) -> dict[str, Tensor]:
        module: nn.Module = self._engine.module
        sharded = self.stage == 3
        parameters = list(module.parameters())
        with deepspeed.zero.GatheredParameters(parameters) if sharded else nullcontext():
            if dist.get_rank() != 0:
                return {}
            return {name: value.detach().cpu().clone() for name, value in module.named_parameters()}


def _third_stage_shard(name: str, parameter: Any) -> Shard:
    """Returns this rank's part under ZeRO-3, which pads each parameter to equal parts."""
    weight, gradient = safe_get_local_fp32_param(parameter), safe_get_local_grad(parameter)
    remaining = parameter.ds_numel - dist.get_rank() * weight.numel()
    own = min(max(remaining, 0), weight.numel())
    return Shard(name, weight[:own], gradient[:own])


def _flat_shard(name: str, parameter: Any) -> Shard:
    """Returns this rank's piece, if any, under ZeRO-1 and 2, which cut all parameters as one.

    `safe_get_full_grad` would sum each gradient over the ranks.
    """
    piece = parameter._hp_mapping
    if piece is None:
        return Shard(name)
    gradient = piece.get_lp_grad_fragment(parameter._index_in_param_group)
    return Shard(name, piece.hp_fragment, gradient)


def _flat(name: str, parameter: Any, optimizer: Any) -> Iterator[Piece]:
    """Yields, for ZeRO-1 and 2, the whole parameter, and this rank's fragment, if any."""
    shape, piece = tuple(parameter.shape), parameter._hp_mapping
    yield Piece(name, shape, 0, {"weight": parameter.detach().view(-1)})
    if piece is not None:
        flat = optimizer.single_partition_of_fp32_groups[piece.param_group_index]
        held = piece.hp_fragment_address
        values, updates = _fragment(optimizer, flat, held.start, held.numel)
        start = piece.lp_fragment_address.start
        yield Piece(name, shape, start, values, updates, range(held.numel))


def _third_stage(name: str, parameter: Any, optimizer: Any) -> Iterator[Piece]:
    """Yields, for ZeRO-3, both copies of this rank's part; the whole parameter if gathered."""
    shape, part = tuple(parameter.ds_shape), parameter.ds_tensor
    start = min(dist.get_rank() * part.numel(), parameter.ds_numel)
    own = min(part.numel(), parameter.ds_numel - start)
    group, offset, _ = optimizer.grad_position[optimizer.get_param_id(parameter)]
    flat = optimizer.fp32_partitioned_groups_flat[group]
    values, updates = _fragment(optimizer, flat, offset, own)
    yield Piece(name, shape, start, values, updates, range(own))
    yield Piece(name, shape, start, {"weight": part.detach()[:own]})
    if parameter.ds_status == ZeroParamStatus.AVAILABLE:
        yield Piece(name, shape, 0, {"weight": parameter.detach().view(-1)})


def _fragment(optimizer: Any, flat: Tensor, start: int, n: int) -> tuple[dict[str, Tensor], Tensor]:
    """Returns the values of a part of AdamW's flat parameter, and its count of updates."""
    state = adam_state(optimizer.optimizer, flat)
    values = {kind: value.narrow(0, start, n) for kind, value in flat_values(flat, state).items()}
    return values, state["step"]
