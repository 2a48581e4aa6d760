"""Counts what a training step asks of a GPU, on a machine without one: operations and kernels,
bytes of their operands, waits of the host, and bytes that are uploaded.

Tensors of torch's meta device, which have no values, stand for those on a GPU. A whole step runs on
them, from the encoder to the optimizer; Triton's kernels are noted where they are launched.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.optim import adam
from torch.utils._python_dispatch import TorchDispatchMode

from bigtrk import process
from bigtrk.cost.operations import result_of, tensors
from bigtrk.graphs.event_graph import EventGraph, whole_sector
from bigtrk.graphs.features import EDGE_FEATURES, NODE_FEATURES
from bigtrk.models import protocol
from bigtrk.models.edges import native, states, triton_passes
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.parallel.engines.ddp import SPEC
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import PeakMemory, Stopwatch, World
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.settings import Configuration
from bigtrk.training.trainer import StepRunner
from tests.distributed.ranks import ALONE

META, CPU = torch.device("meta"), torch.device("cpu")
CONFIGURATION = Configuration.model_validate({"model": {"hidden": 64, "precision": "bf16"}})
NODES_OF_EDGE = 0.05  # as in CTD's events
_aten = torch.ops.aten
_ALLOCATIONS = (_aten.empty, _aten.new_empty, _aten.empty_like, _aten.empty_strided, _aten.detach)
# Operations that start as many kernels on a GPU (aten/src/ATen/native/Loss.cpp).
_KERNELS = {_aten.binary_cross_entropy_with_logits: 5}


@dataclass
class Asked:
    """The demands on a GPU: launches by name, bytes of their operands and of uploads, waits."""

    launches: Counter[str] = field(default_factory=Counter)
    n_bytes: int = 0
    uploaded: int = 0
    waits: list[str] = field(default_factory=list)

    def launch(self, name: str, operands: Sequence[Tensor], kernels: int = 1) -> None:
        self.launches[name] += kernels
        self.n_bytes += sum(one.nbytes for one in operands)


class Noting(TorchDispatchMode):
    """Notes operations on meta tensors; what is read of one is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Asked()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs, packet = kwargs or {}, func._overloadpacket
        if packet in (_aten._to_copy, _aten.copy_):
            return self._copied(func, args, kwargs)
        if packet is _aten._local_scalar_dense and args[0].is_meta:
            self.asked.waits.append("read")
            return torch.zeros((), dtype=args[0].dtype).item()
        # The meta device has no form of it.
        made = None if packet is _aten._fused_adamw_ else result_of(func, args, kwargs)
        # A tensor given as `out` is only written.
        others = {name: value for name, value in kwargs.items() if name != "out"}
        operands = [*tensors((args, others)), *tensors(made)]
        on_device = any(one.is_meta for one in operands)
        if on_device and not func.is_view and packet not in _ALLOCATIONS:
            self.asked.launch(str(packet), operands, _KERNELS.get(packet, 1))
        return made

    def _copied(self, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Notes an upload, what is read of the device, or a copy there."""
        within = func._overloadpacket is _aten.copy_
        source, target = (args[1], args[0].device) if within else (args[0], kwargs.get("device"))
        target = torch.device(target or source.device)
        if source.is_meta and target == CPU:
            self.asked.waits.append("read")
            return torch.zeros(source.shape, dtype=kwargs.get("dtype") or source.dtype)
        made = func(*args, **kwargs)
        if source.is_meta:
            self.asked.launch(str(func._overloadpacket), [source, made])
        elif target == META:
            self.asked.uploaded += source.nbytes
            self.asked.waits += [] if kwargs.get("non_blocking") else ["upload"]
        return made


class _OnMeta(Ranks):
    device = META


def drawn_graph(n_edges: int) -> EventGraph:
    """Makes a whole graph of the size; its values do not matter."""
    n_nodes = max(2, round(n_edges * NODES_OF_EDGE))
    destination = torch.arange(n_edges) * n_nodes // n_edges
    nodes, edges = torch.ones(n_nodes, len(NODE_FEATURES)), torch.ones(n_edges, len(EDGE_FEATURES))
    ends, y = torch.stack([torch.zeros_like(destination), destination]), destination % 3 == 0
    return EventGraph("drawn", NODE_FEATURES, EDGE_FEATURES, nodes, ends, edges, y=y)


@contextmanager
def as_on_gpu() -> Iterator[Noting]:
    """Has meta tensors treated as those of a GPU with Triton, whose kernels are noted."""
    from triton.runtime.jit import KernelInterface

    noting = Noting()

    def launch(kernel: Any, _: Any) -> Any:
        return lambda *args, **named: noting.asked.launch(kernel.__name__, tensors((args, named)))

    def check(ends: Tensor, n_nodes: int) -> None:
        if protocol.CHECKED.get(ends) != n_nodes:
            noting.asked.launch("check", [ends] * 2, 5)

    stand_ins: list[tuple[Any, str, Any]] = [
        (KernelInterface, "__getitem__", launch),
        (triton_passes, "usable", lambda device, dtype: device == META),  # noqa: ARG005
        (native, "usable", lambda device, dtype: device == CPU),  # noqa: ARG005
        (states, "as_on_gpu", lambda device: device == META),
        (Tensor, "is_cuda", property(lambda tensor: tensor.is_meta)),
        # Two comparisons, both, all, an assertion, which the meta device leaves out.
        (protocol, "check_edges", check),
        (process, "pinned", lambda tensor, dtype: tensor.to(dtype)),
        (torch.cuda, "device_of", lambda _: nullcontext()),
        (torch.cuda, "synchronize", lambda *_: noting.asked.waits.append("synchronize")),
        (adam, "_device_dtype_check_for_fused", lambda *_: None),
    ]
    with ExitStack() as stack:
        for place, name, stand_in in stand_ins:
            stack.enter_context(patch.object(place, name, stand_in))
        yield stack.enter_context(noting)


@contextmanager
def batch_maker(given: Configuration = CONFIGURATION) -> Iterator[BatchMaker]:
    """Makes what prepares events for the meta device, in a process group of one rank."""
    with patch.dict(os.environ), process_group(ALONE):
        ranks = _OnMeta(**vars(ALONE))
        yield BatchMaker(given, World(ranks, {}, Stopwatch(CPU), PeakMemory(META)))


def count_step(n_edges: int, given: Configuration = CONFIGURATION) -> tuple[Asked, Asked]:
    """Counts the making of a batch of a drawn event, and a step on it."""
    with batch_maker(given) as maker:
        world, sector = maker.world, whole_sector(drawn_graph(n_edges))
        with META:
            model = InteractionGNN(given.model, len(NODE_FEATURES), len(EDGE_FEATURES))  # type: ignore[arg-type]
        with as_on_gpu() as making:
            share = maker.alone(0, sector)
        with as_on_gpu() as running:
            engine = SPEC.make(given.engine, model, given.optimizer, world.stopwatch, {})
            list(engine.pieces())  # AdamW's state is there, as after the first step
            running.asked = Asked()
            StepRunner(engine, given.training, world).run([0], [share], lr=1e-3)
    return making.asked, running.asked
