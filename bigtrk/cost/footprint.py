"""Counts what a training pass of the model holds, computes and moves, without running it.

The model itself runs forward and backward on meta tensors (shapes without data), so the count
follows the model as it is, whatever it recomputes and in which precision. A model of the user's own
that cannot do that runs on small random graphs instead. All counts are linear in the sizes of a
sector, so a few small passes give them for every size.

Shapes: T moments of the pass; the 4 columns are coefficients of (edges, nodes, owned nodes, 1).
"""

import weakref
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from bigtrk.cost.zero_memory import Weights
from bigtrk.models.build import make_model
from bigtrk.models.layers.workspace import chunk_rows
from bigtrk.models.protocol import units
from bigtrk.models.settings import ModelConfig

Columns = NDArray[np.float64]
# Edges, nodes and owned nodes, in chunks. They are independent in all columns, and each that is cut
# has a halo, so that all passes run the same operations.
_CUT_SIZES = ((2, 2, 1), (3, 2, 1), (2, 3, 1), (3, 3, 2))
_WHOLE_SIZES = ((2, 1, 1), (3, 1, 1), (2, 2, 2))
_ROWS = 1000  # of a chunk where a layer is computed at once
_aten = torch.ops.aten
# These compute nothing; what a system takes to give memory is counted by its bytes.
_ALLOCATIONS = (_aten.empty, _aten.new_empty, _aten.empty_like, _aten.empty_strided)


@dataclass(frozen=True)
class Footprint:
    """The counts of a pass. live [T, 4]: bytes alive at each moment, without weights, their
    gradients and inputs. saved [4]: bytes alive between forward and backward. host [4]: bytes that
    meanwhile are in the memory of an accelerator's host. flops [4]: those of matrix products.
    products [4]: bytes that these read and write. traffic [4]: bytes that other operations do.
    fresh [4]: bytes of all tensors that are made. operations [4]: their number, counted in whole
    chunks; chunk: rows of one, None where a layer is computed at once. shapes: number of different
    shapes of matrix products. exchanged: bytes of a row in each halo exchange of the forward pass.
    width: that of nodes and edges between layers.
    measured: the passes were of real tensors, since the model reads data that meta tensors do not
    have.
    """

    live: Columns
    saved: Columns
    host: Columns
    flops: Columns
    products: Columns
    traffic: Columns
    fresh: Columns
    operations: Columns
    chunk: int | None
    shapes: int
    exchanged: tuple[int, ...]
    width: int
    weights: Weights
    measured: bool


@lru_cache(maxsize=64)
def footprint(
    config: ModelConfig,
    n_node_features: int,
    n_edge_features: int,
    cut: bool,
    to_host: bool = False,
) -> Footprint:
    """Counts the footprint on a whole graph or, if `cut`, on a sector that exchanges halo rows.

    to_host: offloaded tensors go to the memory of an accelerator's host; a CPU's has them already.
    """
    # A rank routes by its own count: the same graphs on all, and other random numbers as they were.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return _count(config, n_node_features, n_edge_features, cut, to_host, "meta")
        except Exception:
            if config.hidden is not None:  # one of ours, which all run there
                raise
        return _count(config, n_node_features, n_edge_features, cut, to_host, "cpu")


def _count(
    config: ModelConfig,
    n_node_features: int,
    n_edge_features: int,
    cut: bool,
    to_host: bool,
    device: Literal["meta", "cpu"],
) -> Footprint:
    passes = []
    with torch.device(device):
        model = make_model(config, n_node_features, n_edge_features)
        dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        chunk = None
        if config.in_chunks and config.hidden:
            chunk = chunk_rows(config.hidden, config.recompute, dtype, torch.device("cpu"))
        rows = chunk or _ROWS
        sizes = [
            (rows * edges, rows * nodes, rows * owned)
            for edges, nodes, owned in (_CUT_SIZES if cut else _WHOLE_SIZES)
        ]
        for size in sizes:
            inputs = _inputs(n_node_features, n_edge_features, size)
            exchange = _Halo(size[1] - size[2] if cut else 0)
            passes.append(_run(model, inputs, size, exchange, _Host() if to_host else None))
    design = np.array([[*size, 1] for size in sizes], dtype=np.float64)
    # In a whole graph nodes and owned nodes are equally many; the pseudo-inverse shares their
    # coefficient.
    solve = np.linalg.pinv(design)
    # In chunks the number of moments grows with the edges, but the bytes alive at each do not.
    in_step = not chunk and len({len(count.live) for count in passes}) == 1
    moments = [count.live if in_step else [max(count.live)] for count in passes]
    live = (solve @ np.array(moments)).T
    return Footprint(
        live=np.unique(live.round(6), axis=0),
        saved=solve @ np.array([count.saved for count in passes]),
        host=solve @ np.array([count.host for count in passes]),
        flops=solve @ np.array([count.work.flops for count in passes]),
        products=solve @ np.array([count.work.products for count in passes]),
        traffic=solve @ np.array([count.work.traffic for count in passes]),
        fresh=solve @ np.array([count.work.fresh for count in passes]),
        operations=solve @ np.array([count.work.operations for count in passes]),
        chunk=chunk,
        shapes=max(len(count.work.shapes) for count in passes),
        exchanged=passes[0].exchanged,
        width=config.hidden or _most_outputs(model),
        weights=Weights(
            total=_numel(model),
            layer=max((_numel(unit) for unit in units(model)), default=_numel(model)),
            parameter=max(parameter.numel() for parameter in model.parameters()),
        ),
        measured=device == "cpu",
    )


@dataclass
class _Work:
    flops: float = 0.0
    products: float = 0.0
    traffic: float = 0.0
    fresh: float = 0.0
    operations: int = 0
    shapes: set[tuple[Any, ...]] = field(default_factory=set)


@dataclass
class _Pass:
    live: list[float]
    saved: float
    host: float
    work: _Work
    exchanged: tuple[int, ...]


def _run(
    model: nn.Module,
    inputs: tuple[Any, ...],
    size: tuple[int, int, int],
    exchange: "_Halo",
    host: "_Host | None",
) -> _Pass:
    """Runs one forward and backward pass, which keeps its activations on `host` if there is one."""
    # They are made before, as engines with buckets do: what a pass adds to them is freed at once.
    gradients = [torch.empty_like(parameter) for parameter in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    label, weight = torch.ones(size[0]), torch.ones(size[0])
    with _Counter([*model.parameters(), *gradients, *_tensors(inputs), label, weight]) as counter:
        with host or nullcontext():
            made = model(*inputs, exchange)
        if made.dim() == 1:
            loss = binary_cross_entropy_with_logits(made, label, weight=weight, reduction="sum")
        else:  # the loss of an embedding is of a few pairs of hits
            loss = made.sum()
        saved = counter.alive
        loss.backward()
    kept = host.bytes if host else 0
    return _Pass(counter.live, saved, kept, counter.work, tuple(exchange.row_bytes))


def _inputs(
    n_node_features: int, n_edge_features: int, size: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor, int]:
    edges, nodes, owned = size
    return (
        torch.randn(nodes, n_node_features),
        torch.randn(edges, n_edge_features),
        torch.randint(nodes, (2, edges)),
        owned,
    )


class _Halo:
    """Returns an exchange that receives `n_halo` rows without sending, and notes the bytes of a
    row.
    """

    def __init__(self, n_halo: int) -> None:
        self._n_halo = n_halo
        self.row_bytes: list[int] = []

    def __call__(self, owned: Tensor) -> Tensor:
        self.row_bytes.append(owned.shape[1] * owned.element_size())
        if not self._n_halo:
            return owned
        return torch.cat([owned, owned.new_zeros(self._n_halo, owned.shape[1])])


def _most_outputs(model: nn.Module) -> int:
    """Gives the most outputs of a weight, which stand for the width of a model that tells none."""
    return max(parameter.shape[0] for parameter in model.parameters())


def _numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class _Host(saved_tensors_hooks):
    """Counts as save_on_cpu works on an accelerator: each tensor that a node keeps is copied to the
    host, even if another node keeps it too, and copied back in the backward pass.
    """

    def __init__(self) -> None:
        super().__init__(self._take, self._give_back)
        self.bytes = 0

    def _take(self, tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
        self.bytes += tensor.nbytes
        return tensor.shape, tensor.dtype

    def _give_back(self, taken: tuple[torch.Size, torch.dtype]) -> Tensor:
        shape, dtype = taken
        return torch.empty(shape, dtype=dtype, device="meta")


class _Counter(TorchDispatchMode):
    """Counts every operation below autograd: those of the backward pass and of recomputation."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        """`known` tensors do not count, nor do their views."""
        super().__init__()
        self.alive = 0
        self.live: list[float] = []
        self.work = _Work()
        self._bytes = {tensor.untyped_storage()._cdata: 0 for tensor in known}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        # A tensor given as `out` is only written.
        read = _tensors((args, {name: kwargs[name] for name in kwargs if name != "out"}))
        written = _tensors(result)
        for tensor in written:
            self._follow(tensor.untyped_storage())
        self.live.append(self.alive)
        packet, work = func._overloadpacket, self.work
        if func.is_view or packet in _ALLOCATIONS:
            return result
        work.operations += 1
        n_bytes = sum(t.numel() * t.element_size() for t in (*read, *written))
        if packet in flop_registry:
            work.products += n_bytes
            work.shapes.add((packet, *(tuple(t.shape) for t in read)))
            work.flops += flop_registry[packet](*args, **kwargs, out_val=result)
        else:
            work.traffic += n_bytes
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._bytes:
            self._bytes[key] = storage.nbytes()
            self.alive += storage.nbytes()
            self.work.fresh += storage.nbytes()
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.alive -= self._bytes.pop(key)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
