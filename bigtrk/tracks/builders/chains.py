"""Chains of edges through the hits that the tree of hits leaves without a track.

The tree unites hits by the best edges first. If a particle's hit has a better edge to a wrong hit,
no union holds the particle's hits alone; a chain may. Chains overlap; the best are taken in turn.

Shapes: N hits, C chains, F features.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import NO_TRACK, ScoredGraph, numbered, outward_edges
from bigtrk.tracks.builders.candidates import HitGroups, helix_features, logit, ranges
from bigtrk.tracks.builders.hit_tree import Ids, Values

MIN_HITS = 3
MOST_HITS = 20
LOWEST_SCORE = 0.02  # of an edge
# Least sum of the logarithms of a chain's scores. -6 and 200,000 chains found 0.2 % more of the
# particles in Fatras's pixel hits and 1.3 to 1.7 % more in event 1000, in 2 and 6 times the time.
LOWEST_SUM = -4.5
MOST_EDGES = 8  # that a chain may follow from a hit
MOST_CHAINS = 40_000  # of one length; the best are kept


@dataclass(frozen=True)
class Chains:
    """Chains of hits, inner hits first, and features [C, F] float32 as in `candidates.FEATURES`,
    except next_score and next_hits: these are the logits of the best scores of an edge out of the
    last hit, and of an edge into the first hit.
    """

    hits: HitGroups
    features: NDArray[np.float32]


def find_chains(graph: ScoredGraph, free: NDArray[np.bool_], min_hits: int) -> Chains:
    """Finds chains of free hits, each hit in another module. free [N]: hits without a track. A
    chain has at most MOST_HITS hits, and at least MIN_HITS, or `min_hits` if that is more.
    """
    edges = outward_edges(graph, LOWEST_SCORE)
    edges = edges.where(free[edges.source] & free[edges.destination])
    edges = edges.where(np.lexsort((edges.destination, -edges.score, edges.source)))
    best_out, best_in = np.full((2, graph.n_hits), logit(np.array(LOWEST_SCORE)))
    np.maximum.at(best_out, edges.source, logit(edges.score))
    np.maximum.at(best_in, edges.destination, logit(edges.score))
    first = np.searchsorted(edges.source, np.arange(graph.n_hits + 1))
    n_edges = np.minimum(np.diff(first), MOST_EDGES)
    module = _modules(graph)
    log_score = np.log(edges.score)

    chain, (total, lowest) = np.arange(graph.n_hits)[:, None], np.zeros((2, graph.n_hits))
    found = [(np.zeros((0, MIN_HITS), np.int64), np.zeros(0), np.zeros(0))]
    while len(chain) and chain.shape[1] < MOST_HITS:
        last = chain[:, -1]
        row = np.repeat(np.arange(len(chain)), n_edges[last])
        edge = ranges(first[last], n_edges[last])
        new = edges.destination[edge]
        sums = total[row] + log_score[edge]
        is_chain = (sums > LOWEST_SUM) & (module[chain[row]] != module[new][:, None]).all(axis=1)
        kept = np.flatnonzero(is_chain)
        kept = np.sort(kept[np.argsort(-sums[kept], kind="stable")[:MOST_CHAINS]])
        chain = np.column_stack([chain[row[kept]], new[kept]])
        total, lowest = sums[kept], np.minimum(lowest[row[kept]], log_score[edge[kept]])
        if chain.shape[1] >= max(min_hits, MIN_HITS):
            found.append((chain, total, lowest))
    return _described(found, graph, best_out, best_in)


def _modules(graph: ScoredGraph) -> Ids:
    """Numbers the module of each hit [N]; if modules are unknown, every hit has its own."""
    if graph.modules is None:
        return np.arange(graph.n_hits)
    return np.unique(graph.modules, axis=0, return_inverse=True)[1].reshape(-1)


def _described(
    found: list[tuple[Ids, Values, Values]], graph: ScoredGraph, best_out: Values, best_in: Values
) -> Chains:
    """Makes Chains with features from the chains found, given for each length in turn."""
    hits = HitGroups(
        np.concatenate([chain.ravel() for chain, _, _ in found]),
        np.concatenate([np.full(len(chain), chain.shape[1]) for chain, _, _ in found]),
    )
    total, lowest = (np.concatenate([one[row] for one in found]) for row in (1, 2))
    columns = (
        hits.size,
        logit(np.exp(lowest)),
        logit(np.exp(total / (hits.size - 1))),
        best_out[hits.hit[hits.begin + hits.size - 1]],
        best_in[hits.hit[hits.begin]],
        *helix_features(hits, graph.position),
    )
    return Chains(hits, np.stack(columns, axis=1).astype(np.float32))


def take_chains(hits: HitGroups, gain: Values, track_id: Ids, min_hits: int) -> Ids:
    """Returns the tracks of hits [N] with chains added. Chains are taken by falling gain [C] x
    hits, as long as it is above 0, if none of their hits is in a track yet.
    """
    value = gain * hits.size
    order = np.argsort(-value, kind="stable")
    order = order[value[order] > 0]
    group, number = track_id.copy(), len(track_id)
    for first, size in zip(hits.begin[order].tolist(), hits.size[order].tolist(), strict=True):
        own = hits.hit[first : first + size]
        if (group[own] == NO_TRACK).all():
            group[own] = number
            number += 1
    return numbered(group, min_hits)
