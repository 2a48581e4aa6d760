"""Windows learned from truth: the cuts that reach an edge efficiency with the fewest doublets.

Every layer pair starts with cuts around all its true edges, which are then peeled: whichever
side of whichever pair sheds the most doublets per true edge lost gives way first (patient rule
induction, Friedman and Fisher, Statistics and Computing 9, 1999).

Shapes: T true edges and K doublets of one layer pair; a box is six upper bounds, one per side.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.truth import hit_particles, overfull_particles, particle_kinematics, true_edges
from bigtrk.graphs.builders.windows import (
    Layer,
    LayerPair,
    Windows,
    doublets_by_pair,
    window_columns,
)
from bigtrk.graphs.features import Floats, Ints, hit_coordinates

Key = tuple[Layer, Layer]

TARGET_HITS = 3  # of a particle whose edges a graph should hold
# |phi_slope|, |dphi|, z0, -z0, deta, -deta: either charge, both directions along the beam.
SIDES = 6
PHI_SLOPE, DPHI, Z0, MINUS_Z0, DETA, MINUS_DETA = range(SIDES)
# A box starts within this quantile of all pairs' edges, since some edges scatter far out, and
# within FENCE times the distance from the median to the 95 % quantile, since labels may be wrong.
OUTLIER = 0.9995
FENCE = 30.0
DPHI_MAX = 3.0  # rad
PEEL = 0.005  # fraction of a pair's true edges that one step gives up
DEEPEST = 0.5  # fraction of a pair's true edges at which peeling ends
# With fewer target edges than FEW, the efficiency is FEW_EFFICIENCY, and one edge makes a pair.
FEW = 10_000
FEW_EFFICIENCY = 0.995
SAMPLE = 50_000  # doublets that show what a pair's sides cost
WHOLE = -1  # in place of a side: drop the pair
NO_DOUBLETS = (np.empty((SIDES, 0)), 1.0)  # for a layer pair on which the first event has no hits


@dataclass(frozen=True)
class Step:
    """A peeled box [6] (None: pair dropped), edges kept, and price: doublets shed per edge lost."""

    price: float
    kept: int
    box: Floats | None


def learn_windows(
    events: Sequence[Event],
    made: str,
    efficiency: float | None = None,
    pt_min: float = 1.0,
) -> Windows:
    """Learns windows that keep a fraction `efficiency` of the target edges of `events`.

    Target edges are true edges of particles with pT > `pt_min` GeV and >= TARGET_HITS hits. By
    default the fraction is 0.985, and a layer pair needs 3 target edges; with fewer than FEW target
    edges in all, they are FEW_EFFICIENCY and 1. Doublets are counted on the first event, which
    should be a full one. Windows get a margin for unseen events, largest for rare pairs.
    """
    found = [_target_edges(event, pt_min) for event in events]
    layers = np.concatenate([np.empty((0, 4), dtype=np.int64), *(rows for rows, _ in found)])
    sides = np.concatenate([np.empty((SIDES, 0)), *(columns for _, columns in found)], axis=1)
    few = sides.shape[1] < FEW
    if efficiency is None:
        efficiency = FEW_EFFICIENCY if few else 0.985
    edges = _edges_by_pair(layers, sides, min_edges=1 if few else 3)
    widest = [_layer_pair(key, true.max(axis=1), true.shape[1]) for key, true in edges.items()]
    # The sides of every n-th doublet of each layer pair, at most SAMPLE, and n.
    costs = {}
    for pair, doublets in doublets_by_pair(events[0].hits, Windows(made=made, pairs=tuple(widest))):
        every = -(-doublets.shape[1] // SAMPLE) or 1
        sampled = _sides(events[0], doublets[:, ::every])
        costs[pair.inner, pair.outer] = (sampled, float(every))
    paths = {key: _peel(true, *costs.get(key, NO_DOUBLETS)) for key, true in edges.items()}
    # The lowest price at which the pairs together keep the wanted true edges.
    prices = sorted({step.price for path in paths.values() for step in path}, reverse=True)
    wanted: float = efficiency * sides.shape[1]

    def is_too_low(price: float) -> bool:
        return sum(_state_at(path, price).kept for path in paths.values()) < wanted

    price = prices[max(bisect_left(prices, True, key=is_too_low) - 1, 0)]
    states = {key: _state_at(path, price) for key, path in paths.items()}
    learned = [_with_margin(key, step) for key, step in states.items() if step.box is not None]
    return Windows(made=made, pairs=tuple(sorted(learned, key=lambda pair: -pair.edges)))


def is_target(event: Event, pt_min: float) -> NDArray[np.bool_]:
    """Marks the hits [N] of particles with known pT > `pt_min` GeV and >= TARGET_HITS hits."""
    particles = particle_kinematics(event)
    pt, nhits = particles["pt"].astype(np.float64), particles["nhits"].astype(np.int64)
    chosen = (pt > pt_min) & (nhits >= TARGET_HITS)
    return np.isin(hit_particles(event), particles["particle_id"][chosen])


def teaches(event: Event, pt_min: float) -> NDArray[np.bool_]:
    """Marks the hits [N] of target particles with at most `nhits` hits in the truth."""
    shared, _, _ = overfull_particles(event)
    return is_target(event, pt_min) & ~np.isin(hit_particles(event), shared)


def _target_edges(event: Event, pt_min: float) -> tuple[Ints, Floats]:
    """Returns the layer pair, [T, 4], and the sides, [6, T], of each target edge."""
    edges = true_edges(event)
    edges = edges[:, teaches(event, pt_min)[edges[0]]]
    layer = np.stack([event.hits["volume_id"], event.hits["layer_id"]], axis=1).astype(np.int64)
    return np.concatenate([layer[edges[0]], layer[edges[1]]], axis=1), _sides(event, edges)


def _sides(event: Event, edges: Ints) -> Floats:
    """Computes the six window variables (sides) of edges [2, T]: [6, T]; NaN for inward edges."""
    columns = window_columns(hit_coordinates(event.hits), edges)
    z0, deta = columns["z0"], columns["deta"]
    angles = np.abs(columns["phi_slope"]), np.abs(columns["dphi"])
    return np.stack([*angles, z0, -z0, deta, -deta])


def _edges_by_pair(layers: Ints, sides: Floats, min_edges: int) -> dict[Key, Floats]:
    """Returns, by layer pair, its edges' sides [6, T], without outliers and rare layer pairs."""
    outward = np.isfinite(sides).all(axis=0)
    if not outward.any():
        raise InputError("no target edges to learn windows from; add events, or lower --pt-min")
    limit = np.quantile(sides[:, outward], OUTLIER, axis=1)
    limit[DPHI] = DPHI_MAX
    middle, most = np.quantile(sides[:, outward], [0.5, 0.95], axis=1)
    limit = np.minimum(limit, middle + FENCE * (most - middle))
    usual = (sides <= limit[:, None]).all(axis=0)
    layers, sides = layers[usual], sides[:, usual]
    keys, pair_of, counts = np.unique(layers, axis=0, return_inverse=True, return_counts=True)
    frequent = np.flatnonzero(counts >= min_edges)
    return {
        ((int(a), int(b)), (int(c), int(d))): sides[:, pair_of == pair]
        for pair, (a, b, c, d) in zip(frequent, keys[frequent], strict=True)
    }


def _peel(true: Floats, doublets: Floats, weight: float) -> list[Step]:
    """Shrinks a pair's box, at each step on the side of highest price. weight: of a doublet."""
    edges = true.shape[1]
    steps = [Step(math.inf, edges, true.max(axis=1))]
    while true.shape[1] > DEEPEST * edges:
        price, side, cut = max(_offers(true, doublets))
        price *= weight
        if side == WHOLE:
            return [*steps, Step(price, 0, None)]
        true, doublets = true[:, true[side] <= cut], doublets[:, doublets[side] <= cut]
        box = steps[-1].box
        assert box is not None
        steps.append(Step(price, true.shape[1], np.where(np.arange(SIDES) == side, cut, box)))
    return steps


def _offers(true: Floats, doublets: Floats) -> Iterator[tuple[float, int, float]]:
    """Yields possible next cuts (price, side, new bound): one per side, and WHOLE, to drop all."""
    edges = true.shape[1]
    yield doublets.shape[1] / edges, WHOLE, math.nan
    lose = max(1, int(PEEL * edges))
    if edges <= lose:
        return
    for side in range(SIDES):
        cut = float(np.partition(true[side], edges - lose - 1)[edges - lose - 1])
        lost = int((true[side] > cut).sum())
        if lost:
            yield float((doublets[side] > cut).sum()) / lost, side, cut


def _state_at(path: list[Step], price: float) -> Step:
    """Returns the last step of a pair's path whose price is at least `price`."""
    return [step for step in path if step.price >= price][-1]


def _with_margin(key: Key, step: Step) -> LayerPair:
    """Makes a layer pair from a box, widened since few edges do not show the spread of all."""
    assert step.box is not None
    margin = 0.02 + 1.0 / math.sqrt(step.kept)
    box = step.box.copy()
    box[[PHI_SLOPE, DPHI]] *= 1 + margin
    for high, low in ((Z0, MINUS_Z0), (DETA, MINUS_DETA)):
        box[[high, low]] += margin * (step.box[high] + step.box[low]) / 2
    return _layer_pair(key, box, step.kept)


def _layer_pair(key: Key, box: Floats, edges: int) -> LayerPair:
    # The bounds move outwards by 1e-3 of their size, so that rounding loses no edge.
    high = [float(f"{bound + 1e-3 * abs(bound):.4g}") for bound in box]
    return LayerPair(
        inner=key[0],
        outer=key[1],
        edges=edges,
        phi_slope=high[PHI_SLOPE],
        dphi=min(high[DPHI], DPHI_MAX),
        z0=(-high[MINUS_Z0], high[Z0]),
        deta=(-high[MINUS_DETA], high[DETA]),
    )
