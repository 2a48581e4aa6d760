"""Chains of edges through the hits that the tree of hits leaves without a track.

The tree unites hits by the best edges first. If a particle's hit has a better edge to a wrong hit,
no union holds the particle's hits alone; a chain may. A chain grows by triplets: an edge, and
another that continues it. A network judges each triplet by its edges' scores and the helix through
its hits. On Fatras's free hits its cross entropy was 0.015; that of a network that read the scores
alone was 0.048. Chains overlap; the best are taken in turn.

Shapes: N hits, E edges, T triplets, C chains, F features.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import (
    NO_TRACK,
    Edges,
    ScoredGraph,
    best_at,
    numbered,
    outward_edges,
)
from bigtrk.tracks.builders.candidates import HitGroups, features_of, logit, ranges
from bigtrk.tracks.builders.hit_tree import Ids, Values

MIN_HITS = 3
MOST_HITS = 20
LOWEST_SCORE = 1e-3  # of an edge
MOST_EDGES = 8  # that leave a hit, and that reach one; the best are kept
LOWEST_TRIPLET = 0.01  # probability of a triplet in a chain
LOWEST_SUM = -6.0  # of the logarithms of a chain's triplets' probabilities
MOST_CHAINS = 40_000  # of one length; the best are kept

Judge = Callable[[NDArray[np.float32]], Values]  # features [T, F] -> probabilities [T]


@dataclass(frozen=True)
class Chains:
    """Chains of hits, inner hits first, and features [C, F] float32 as in `candidates.FEATURES`,
    except next_score and next_hits: these are the logits of the best scores of what continues the
    chain beyond its last hit, and before its first. The scores are those of edges in a triplet, and
    the probabilities of triplets in a chain that `find_chains` returns.
    """

    hits: HitGroups
    features: NDArray[np.float32]


@dataclass(frozen=True)
class Triplets:
    """Pairs of edges [E], the second of which begins where the first ends: first, second [T] are
    rows of `edges`. Triplets are sorted by `first`. chains: their hits, 3 each, and features.
    module [N]: the number of each hit's module.
    """

    module: Ids
    edges: Edges
    first: Ids
    second: Ids
    chains: Chains


def find_triplets(graph: ScoredGraph, free: NDArray[np.bool_]) -> Triplets:
    """Finds triplets of free hits, each hit in another module. free [N]: hits without a track."""
    module = _modules(graph)
    edges = outward_edges(graph, LOWEST_SCORE)
    edges = edges.where(free[edges.source] & free[edges.destination])
    edges = edges.where(module[edges.source] != module[edges.destination])
    # A pair of hits may have edges in both directions.
    pair = edges.source * graph.n_hits + edges.destination
    edges = edges.where(best_at(pair, edges.destination, edges.score))
    edges = edges.where(best_at(edges.destination, edges.source, edges.score, MOST_EDGES))
    edges = edges.where(best_at(edges.source, edges.destination, edges.score, MOST_EDGES))
    edges = edges.where(np.lexsort((edges.destination, -edges.score, edges.source)))
    begin = np.searchsorted(edges.source, np.arange(graph.n_hits + 1))
    n_next = np.diff(begin)[edges.destination]
    first = np.repeat(np.arange(len(n_next)), n_next)
    second = ranges(begin[edges.destination], n_next)
    apart = module[edges.source[first]] != module[edges.destination[second]]
    first, second = first[apart], second[apart]
    inner, outer = edges.source[first], edges.destination[second]
    hit = np.column_stack([inner, edges.destination[first], outer])
    one, other = np.log(edges.score[first]), np.log(edges.score[second])
    hits = HitGroups(hit.ravel(), np.full(len(hit), 3))
    features = features_of(
        hits,
        graph.position,
        logit(np.exp(np.minimum(one, other))),
        logit(np.exp((one + other) / 2)),
        _best_score(edges.source, edges.score, graph.n_hits)[outer],
        _best_score(edges.destination, edges.score, graph.n_hits)[inner],
    )
    return Triplets(module, edges, first, second, Chains(hits, features))


def find_chains(graph: ScoredGraph, triplets: Triplets, judge: Judge, min_hits: int) -> Chains:
    """Finds chains of hits, each hit in another module. A chain has at most MOST_HITS hits, and at
    least MIN_HITS, or `min_hits` if that is more. `judge` returns the probabilities of triplets.
    """
    edges, module = triplets.edges, triplets.module
    links = Edges(triplets.first, triplets.second, judge(triplets.chains.features))
    links = links.where(links.score > LOWEST_TRIPLET)  # sorted by their first edge
    begin = np.searchsorted(links.source, np.arange(len(edges.score) + 1))
    n_links = np.diff(begin)
    log_score = np.log(links.score)

    chain = np.column_stack([edges.source, edges.destination])
    start = end = np.arange(len(chain))  # the first and the last edge of each chain
    total, lowest = np.zeros((2, len(chain)))
    found = [(chain[:0].ravel(), *[start[:0]] * 3, *[total[:0]] * 2)]
    while len(chain) and chain.shape[1] < MOST_HITS:
        row = np.repeat(np.arange(len(chain)), n_links[end])
        link = ranges(begin[end], n_links[end])
        sums, new = total[row] + log_score[link], edges.destination[links.destination[link]]
        kept = np.flatnonzero(sums > LOWEST_SUM)
        others = module[chain[row[kept]]] != module[new[kept]][:, None]
        kept = kept[others.all(axis=1)]
        kept = np.sort(kept[np.argsort(-sums[kept], kind="stable")[:MOST_CHAINS]])
        row, link, total = row[kept], link[kept], sums[kept]
        chain = np.column_stack([chain[row], new[kept]])
        start, end = start[row], links.destination[link]
        lowest = np.minimum(lowest[row], log_score[link])
        if (n_hits := chain.shape[1]) >= max(min_hits, MIN_HITS):
            found.append((chain.ravel(), np.full(len(chain), n_hits), start, end, lowest, total))
    hit, size, start, end, lowest, total = (np.concatenate(one) for one in zip(*found, strict=True))
    hits = HitGroups(hit, size)
    features = features_of(
        hits,
        graph.position,
        logit(np.exp(lowest)),
        logit(np.exp(total / (size - 2))),
        _best_score(links.source, links.score, len(edges.score))[end],
        _best_score(links.destination, links.score, len(edges.score))[start],
    )
    return Chains(hits, features)


def _best_score(end: Ids, score: Values, n_ends: int) -> Values:
    """Returns the logit of the best score at each of `n_ends` ends, or that of LOWEST_SCORE."""
    best = np.full(n_ends, LOWEST_SCORE)
    np.maximum.at(best, end, score)
    return logit(best)


def _modules(graph: ScoredGraph) -> Ids:
    """Numbers the module of each hit [N]; if modules are unknown, every hit has its own."""
    if graph.modules is None:
        return np.arange(graph.n_hits)
    return np.unique(graph.modules, axis=0, return_inverse=True)[1].reshape(-1)


def take_chains(hits: HitGroups, gain: Values, track_id: Ids, min_hits: int) -> Ids:
    """Returns the tracks of hits [N] with chains added. Chains are taken by falling gain [C] x
    hits, as long as it is above 0, if none of their hits is in a track yet.
    """
    value = gain * hits.size
    chain = np.argsort(-value, kind="stable")
    chain = chain[value[chain] > 0]
    group, first = track_id.copy(), np.empty_like(track_id)
    while True:
        of = HitGroups(hits.hit[ranges(hits.begin[chain], hits.size[chain])], hits.size[chain])
        is_free = np.logical_and.reduceat(group[of.hit] == NO_TRACK, of.begin)
        if not len(chain := chain[is_free]):
            return numbered(group, min_hits)
        of = HitGroups(of.hit[np.repeat(is_free, of.size)], of.size[is_free])
        # A chain that comes first at each of its hits is taken, whatever becomes of the others.
        number = np.repeat(np.arange(len(chain)), of.size)
        first[of.hit[::-1]] = number[::-1]
        is_first = np.logical_and.reduceat(first[of.hit] == number, of.begin)
        taken = is_first[number]
        group[of.hit[taken]] = len(group) + chain[number[taken]]
