"""Counts the memory, operations and bytes moved of a model's training pass, without running it.

The model itself runs forward and backward on meta tensors (shapes without data), so the count
follows the model as it is, with its recomputation and precision. A model of the user's own that
cannot do that runs on small random graphs instead. All counts are linear in the sizes of a sector,
so a few small passes give them for every size. On a GPU a pass has other chunks, and fused launches
over edges, whose operations and bytes models/edges/work.py counts.

Shapes: T moments of the pass; the 4 columns are coefficients of (edges, nodes, owned nodes, 1).
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.cost.event_size import SectorSize
from bigtrk.cost.operations import Counted, Counter, CountingStore, tensors
from bigtrk.models.edges.schedule import TALLEST, most_programs
from bigtrk.models.edges.states import chunk_rows
from bigtrk.models.edges.work import counting
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import LayeredModel, OfOneSector, SectorInputs, units
from bigtrk.models.settings import ModelConfig, make_model
from bigtrk.parallel.engines.spec import Weights

Columns = NDArray[np.float64]
# (edges, nodes, owned nodes) of the counted graphs, in chunks; linearly independent. Each has as
# many edges as nodes or more; each that is cut has a halo. So all run the same operations.
_CUT_SIZES = ((3, 2, 1), (4, 2, 1), (3, 3, 1), (4, 3, 2))
_WHOLE_SIZES = ((2, 1, 1), (3, 1, 1), (2, 2, 2))
_ROWS = 1000  # rows of a count if a layer is computed at once
# Sectors of a rank that are counted at once, at most: a pass over many takes seconds.
_COUNTED_SECTORS = 3
_FEWEST_ROWS = 64  # rows of a count for a GPU's small graphs
_COUNTS = ("saved", "away", "moved", "flops", "bf16_flops", "traffic", "operations")


@dataclass(frozen=True)
class Footprint:
    """The counts of a forward and backward pass. Each [4] has a count per edge, node and owned
    node, and a constant (`columns`). live [T, 4]: bytes alive at each moment, without weights,
    their gradients and inputs. saved: bytes alive between forward and backward. away: bytes of
    edges that meanwhile are off the device. moved: bytes that travel there and back. flops: in all
    matrix products; bf16_flops: in products that read or write bfloat16. traffic: bytes that
    operations read and write. operations: their number. busy_rows: rows of a GPU's pass from which
    on its counts are linear; None on a CPU, where they always are. exchanged: bytes of a row in
    each halo exchange of the forward pass. width: of the states of nodes and edges between layers.
    measured: real tensors were passed, since the model reads data that meta tensors do not have.
    layered: the model takes several sectors at once.
    """

    live: Columns
    saved: Columns
    away: Columns
    moved: Columns
    flops: Columns
    bf16_flops: Columns
    traffic: Columns
    operations: Columns
    busy_rows: int | None
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
    on_gpu: bool = False,
    most_rows: int | None = None,
) -> Footprint:
    """Counts a pass over a whole graph or, if `cut`, over a sector that exchanges halo rows. A
    layered model may pass several `sectors` of equal size; counts are functions of the size of one.

    away_in: edges between layers are off the device, and come to it in blocks of this many bytes.
    on_gpu: on a GPU, over enough edges to keep it busy. most_rows: over at most this many rows, for
    a graph too small for that.
    """
    busy, chunk = _busy_rows(config, on_gpu)
    factors = _CUT_SIZES if cut else _WHOLE_SIZES
    rows = busy
    if most_rows is not None:
        rows = min(busy, most_rows) // max(edges for edges, _, _ in factors)
    sizes = [(rows * edges, rows * nodes, rows * owned) for edges, nodes, owned in factors]

    def run(device: Literal["meta", "cpu"]) -> tuple[nn.Module, list[Counted]]:
        with torch.device(device):
            model = make_model(config, n_node_features, n_edge_features)
        passes = []
        for edges, nodes, owned in sizes:
            shape = n_node_features, n_edge_features, edges, nodes, owned
            inputs = [_inputs(*shape, device) for _ in range(sectors)]
            passes.append(_run(model, inputs, _Halo(nodes - owned if cut else 0), away_in, on_gpu))
        return model, passes

    # Ranks route by their own counts, so all draw the same graphs; other random numbers stay as is.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            measured, (model, passes) = False, run("meta")
        except Exception:
            if config.hidden is not None:  # a model of bigtrk's: these run
                raise
            measured, (model, passes) = True, run("cpu")
    # In a whole graph nodes and owned nodes are equally many; the pseudo-inverse shares their
    # coefficient.
    solve = np.linalg.pinv(np.array([[*size, 1.0] for size in sizes]))
    # In chunks the number of moments grows with the edges, but the bytes alive at each do not.
    in_step = not chunk and len({len(one.live) for one in passes}) == 1
    live = solve @ np.array([one.live if in_step else [max(one.live)] for one in passes])
    most_outputs = max(parameter.shape[0] for parameter in model.parameters())
    return Footprint(
        live=np.unique(live.T.round(6), axis=0),
        **{name: solve @ np.array([getattr(one, name) for one in passes]) for name in _COUNTS},
        busy_rows=busy if on_gpu else None,
        exchanged=passes[0].exchanged,
        width=config.hidden or most_outputs,  # a user's model states no width
        weights=Weights(
            total=_numel(model),
            layer=max((_numel(unit) for unit in units(model)), default=_numel(model)),
            parameter=max(parameter.numel() for parameter in model.parameters()),
        ),
        measured=measured,
        layered=isinstance(model, LayeredModel),
    )


def _busy_rows(config: ModelConfig, on_gpu: bool) -> tuple[int, int | None]:
    """Returns the rows from which on counts are linear (at least a chunk and, on a GPU, a tile for
    each program), and the rows of a chunk (None without chunks).
    """
    if not config.hidden:
        return _ROWS, None
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    device, chunk = torch.device("cuda" if on_gpu else "cpu"), None
    if config.in_chunks:
        chunk = chunk_rows(config.hidden, config.recompute, dtype, device)
    rows = chunk or _ROWS
    if on_gpu and config.keeps_edges:
        rows = max(rows, TALLEST * most_programs(config.hidden))
    return rows, chunk


def _run(
    model: nn.Module,
    inputs: list[SectorInputs],
    exchange: "_Halo",
    away_in: int | None,
    on_gpu: bool,
) -> Counted:
    """Runs one forward and backward pass, and returns its counts."""
    # Gradients exist before the pass, as with buckets: it adds to them, and frees what it added.
    gradients = [parameter.new_empty(parameter.shape) for parameter in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    label = inputs[0].x.new_ones(len(inputs[0].edge_features))
    weight = label.new_ones(len(label))
    counter = Counter([*model.parameters(), *gradients, *tensors(inputs), label, weight])
    store = CountingStore(away_in or 1, counter)
    if away_in:
        assert isinstance(model, InteractionGNN), "no other model keeps edges"
        model.keep_edges_in(store)
    with counter, counting(counter.launched) if on_gpu else nullcontext():
        made = model(inputs, exchange) if inputs[1:] else [model(*inputs[0], OfOneSector(exchange))]
        losses = [_loss(rows, label, weight) for rows in made]
        loss = sum(losses[1:], start=losses[0])
        saved = counter.alive
        loss.backward()
    return replace(
        counter.work,
        live=[alive + store.buffers for alive in counter.live],
        saved=saved + store.buffers,
        away=store.bytes,
        moved=store.moved,
        exchanged=tuple(exchange.row_bytes),
    )


def _loss(made: Tensor, label: Tensor, weight: Tensor) -> Tensor:
    if made.dim() == 1:
        return binary_cross_entropy_with_logits(made, label, weight=weight, reduction="sum")
    return made.sum()  # the loss of an embedding reads only a few pairs of hits


def _inputs(
    n_node_features: int, n_edge_features: int, edges: int, nodes: int, owned: int, device: str
) -> SectorInputs:
    ends = torch.empty(2, edges, dtype=torch.int64, device=device)
    if device != "meta":
        ends.random_(nodes)
    x = torch.ones(nodes, n_node_features, device=device)
    return SectorInputs(x, torch.ones(edges, n_edge_features, device=device), ends, owned)


class _Halo:
    """A mock exchange: appends `n_halo` zero rows to each sector without sending, and records the
    bytes of a row.
    """

    def __init__(self, n_halo: int) -> None:
        self._n_halo = n_halo
        self.row_bytes: list[int] = []

    def __call__(self, owned: list[Tensor]) -> list[Tensor]:
        self.row_bytes.append(owned[0].shape[1] * owned[0].element_size())
        if not self._n_halo:
            return owned
        return [torch.cat([rows, rows.new_zeros(self._n_halo, rows.shape[1])]) for rows in owned]


def _numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# Counts a pass: (number of sectors at once, most rows or None for many).
Count = Callable[[int, int | None], Footprint]


def activations(count: Count, size: SectorSize, sectors: int) -> tuple[float, float]:
    """Returns the bytes of activations of a rank with `sectors` sectors: saved between forward and
    backward, and at the peak. A few sectors are counted; each further one adds the same.
    """
    sizes, few = columns(size), min(sectors, _COUNTED_SECTORS)
    busy, rows = count(1, None).busy_rows, None
    most = max(_FEWEST_ROWS, 1 << int(max(size.edges, size.nodes)).bit_length())
    if busy and most <= busy:
        # Few rows are counted directly: from many rows, 1,000 edges on a GPU were predicted to take
        # 900 MiB of chunks, and took 5.
        rows = most
    counted = count(few, rows)
    saved, peak = float(counted.saved @ sizes), float((counted.live @ sizes).max())
    if sectors > few:
        # Constants count the chunk buffers, which sectors use in turn.
        growing, fewer = sizes * (1, 1, 1, 0), count(few - 1, rows)
        saved += (sectors - few) * float((counted.saved - fewer.saved) @ growing)
        more = (counted.live @ growing).max() - (fewer.live @ growing).max()
        peak += (sectors - few) * float(more)
    return saved, peak


def columns(size: SectorSize) -> Columns:
    """Returns the vector [4] by which counts per edge, node, owned node and 1 are multiplied."""
    return np.array([size.edges, size.nodes, size.owned, 1.0])
