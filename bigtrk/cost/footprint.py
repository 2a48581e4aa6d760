"""Counts what a training pass of the model holds, computes and moves, without running it.

The model itself runs forward and backward on meta tensors (shapes without data), so the count
follows the model as it is, whatever it recomputes and in which precision. A model of the user's own
that cannot do that runs on small random graphs instead. All counts are linear in the sizes of a
sector, so a few small passes give them for every size.

Shapes: T moments of the pass; the 4 columns are coefficients of (edges, nodes, owned nodes, 1).
"""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from bigtrk.cost.meta_results import result_of
from bigtrk.cost.zero_memory import Weights
from bigtrk.models.build import make_model
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.layers.workspace import chunk_rows
from bigtrk.models.protocol import LayeredModel, SectorInputs, units
from bigtrk.models.settings import ModelConfig
from bigtrk.models.stores.store import Block, Rows
from bigtrk.models.stores.streamed import Place, StreamedStore

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
    gradients and inputs. saved [4]: bytes alive between forward and backward. away [4]: bytes of
    edges that meanwhile are off the device. moved [4]: bytes that travel there and back. flops [4]:
    those of matrix products; bf16_flops [4]: of those with results in bfloat16. products [4]: bytes
    that these read and write. traffic [4]: bytes that other operations do. fresh [4]: bytes of all
    tensors that are made. operations [4]: their number, counted in whole chunks; chunk: rows of
    one, None where a layer is computed at once.
    shapes: number of different shapes of bfloat16 products. exchanged: bytes of a row in each halo
    exchange of the forward pass. width: that of nodes and edges between layers. measured: the
    passes were of real tensors, since the model reads data that meta tensors do not have. layered:
    the model takes several sectors at once.
    """

    live: Columns
    saved: Columns
    away: Columns
    moved: Columns
    flops: Columns
    bf16_flops: Columns
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
    layered: bool


@lru_cache(maxsize=256)
def footprint(
    config: ModelConfig,
    n_node_features: int,
    n_edge_features: int,
    cut: bool,
    away_in: int | None = None,
    sectors: int = 1,
) -> Footprint:
    """Counts the footprint on a whole graph or, if `cut`, on a sector that exchanges halo rows; on
    several of one size, of a layered model, by the size of one.

    away_in: edges between layers are off the device, and come to it in blocks of so many bytes.
    """
    # A rank routes by its own count: the same graphs on all, and other random numbers as they were.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return _count(config, n_node_features, n_edge_features, cut, away_in, sectors, "meta")
        except Exception:
            if config.hidden is not None:  # one of ours, which all run there
                raise
        return _count(config, n_node_features, n_edge_features, cut, away_in, sectors, "cpu")


def _count(
    config: ModelConfig,
    n_node_features: int,
    n_edge_features: int,
    cut: bool,
    away_in: int | None,
    sectors: int,
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
        features = n_node_features, n_edge_features
        inputs = [_inputs(*features, size, device) for _ in range(sectors)]
        exchange = _Halo(size[1] - size[2] if cut else 0)
        passes.append(_run(model, inputs, size, exchange, away_in))
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
        away=solve @ np.array([count.away for count in passes]),
        moved=solve @ np.array([count.moved for count in passes]),
        flops=solve @ np.array([count.work.flops for count in passes]),
        bf16_flops=solve @ np.array([count.work.bf16_flops for count in passes]),
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
        layered=isinstance(model, LayeredModel),
    )


@dataclass
class _Work:
    flops: float = 0.0
    bf16_flops: float = 0.0
    products: float = 0.0
    traffic: float = 0.0
    fresh: float = 0.0
    operations: int = 0
    shapes: set[tuple[Any, ...]] = field(default_factory=set)


@dataclass
class _Pass:
    live: list[float]
    saved: float
    away: float
    moved: float
    work: _Work
    exchanged: tuple[int, ...]


def _run(
    model: nn.Module,
    inputs: list[SectorInputs],
    size: tuple[int, int, int],
    exchange: "_Halo",
    away_in: int | None,
) -> _Pass:
    """Runs one forward and backward pass."""
    # They are made before, as engines with buckets do: what a pass adds to them is freed at once.
    gradients = [parameter.new_empty(parameter.shape) for parameter in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    label = torch.ones(size[0], device=inputs[0].x.device)
    weight = label.new_ones(size[0])
    counter = _Counter([*model.parameters(), *gradients, *_tensors(inputs), label, weight])
    store = _CountingStore(away_in or 1, counter)
    if away_in:
        assert isinstance(model, InteractionGNN), "no other model keeps edges"
        model.keep_edges_in(store)
    with counter:
        made = model(inputs, exchange.all) if inputs[1:] else [model(*inputs[0], exchange)]
        losses = [_loss(rows, label, weight) for rows in made]
        loss = sum(losses[1:], start=losses[0])
        saved = counter.alive
        loss.backward()
    return _Pass(
        live=[alive + store.buffers for alive in counter.live],
        saved=saved + store.buffers,
        away=store.bytes,
        moved=store.moved,
        work=counter.work,
        exchanged=tuple(exchange.row_bytes),
    )


def _loss(made: Tensor, label: Tensor, weight: Tensor) -> Tensor:
    if made.dim() == 1:
        return binary_cross_entropy_with_logits(made, label, weight=weight, reduction="sum")
    return made.sum()  # the loss of an embedding is of a few pairs of hits


def _inputs(
    n_node_features: int, n_edge_features: int, size: tuple[int, int, int], device: str
) -> SectorInputs:
    edges, nodes, owned = size
    ends = torch.empty(2, edges, dtype=torch.int64, device=device)
    if device != "meta":
        ends.random_(nodes)
    return SectorInputs(
        torch.ones(nodes, n_node_features, device=device),
        torch.ones(edges, n_edge_features, device=device),
        ends,
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
        return self._with_halo(owned)

    def all(self, owned: list[Tensor]) -> list[Tensor]:
        """Exchanges the rows of several sectors at once."""
        self.row_bytes.append(owned[0].shape[1] * owned[0].element_size())
        return [self._with_halo(rows) for rows in owned]

    def _with_halo(self, owned: Tensor) -> Tensor:
        if not self._n_halo:
            return owned
        return torch.cat([owned, owned.new_zeros(self._n_halo, owned.shape[1])])


def _most_outputs(model: nn.Module) -> int:
    """Gives the most outputs of a weight, which stand for the width of a model that tells none."""
    return max(parameter.shape[0] for parameter in model.parameters())


def _numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass(frozen=True)
class _Away(Place):
    """Rows that are kept off the device."""


class _CountingStore(StreamedStore):
    """Counts the bytes of edges that are kept off the device, of those that travel, and of the
    buffers on the device for blocks of them, whose number no sector's size changes.
    """

    def __init__(self, block_bytes: int, counter: "_Counter") -> None:
        super().__init__(block_bytes)
        self._counter = counter
        self.bytes = self.moved = self.buffers = 0

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> _Away:
        rows = _Away(n_rows, width, dtype, device)
        self.bytes += n_rows * rows.row_bytes
        return rows

    def buffer(self, place: Place, n_rows: int) -> Tensor:
        with _disable_current_modes():
            made = torch.empty(n_rows, place.width, dtype=place.dtype, device="meta")
        self._counter.leave_out(made)
        self.buffers += made.nbytes
        return made

    def ready(self) -> None:
        """Marks nothing: nothing is computed."""

    def move(self, ready: None, place: Place, rows: slice, block: Tensor, *, out: bool) -> None:
        """Moves nothing, as there are no values."""

    def blocks(self, n_rows: int, read: Sequence[Rows], made: Sequence[Rows]) -> Iterator[Block]:
        """Yields the blocks, and counts what would be moved."""
        self.moved += sum(n_rows * rows.row_bytes for rows in (*read, *made))
        return super().blocks(n_rows, read, made)


class _Counter(TorchDispatchMode):
    """Counts every operation below autograd: those of the backward pass and of recomputation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Says that torch need not keep its compiler from it, which takes time each time."""
        return False

    def __init__(self, known: Iterable[Tensor]) -> None:
        """`known` tensors do not count, nor do their views."""
        super().__init__()
        self.alive = 0
        self.live: list[float] = []
        self.work = _Work()
        self._bytes: dict[int, int] = {}
        for tensor in known:
            self.leave_out(tensor)

    def leave_out(self, tensor: Tensor) -> None:
        """Does not count a tensor, nor its views."""
        self._bytes[tensor.untyped_storage()._cdata] = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = result_of(func, args, kwargs)
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
            flops = flop_registry[packet](*args, **kwargs, out_val=result)
            work.flops += flops
            if any(made.dtype == torch.bfloat16 for made in written):
                work.bf16_flops += flops
                work.shapes.add((packet, *map(_layout, read), *map(_layout, written)))
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


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    """Tells products apart as oneDNN does, which compiles one for each."""
    return tensor.dtype, tuple(tensor.shape), tensor.stride()


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
