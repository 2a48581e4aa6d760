"""Counts what the sectors of a cut exchange, for a cut in many parts and those that it merges into.

Shapes: N nodes, E edges, P parts of the finest cut, K parts that it is merged into, H halo rows of
the finest cut. P and K are powers of two: part p is in part `p * K // P`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer[Any]]
HOSTS = (4, 8)  # ranks on a host
DRAWS = 20  # random placements, whose mean is taken
# A placement: for K parts on hosts of R ranks, the host of each part, [K].
PLACEMENTS: dict[str, Callable[[int, int, np.random.Generator], Integers]] = {
    # Rank p has part p, and hosts have ranks in a row: neighbours in METIS's tree share a host.
    "tree": lambda parts, ranks, _: np.arange(parts) // ranks,
    # Ranks are dealt out host by host, as srun --distribution=cyclic does.
    "cyclic": lambda parts, ranks, _: np.arange(parts) % (parts // ranks),
    "random": lambda parts, ranks, draw: draw.permutation(parts) // ranks,
}


@dataclass(frozen=True)
class FinestCut:
    """A cut in P parts, from which those in fewer parts are counted without its edges.

    part [N]; edges [P, P]: edges by the parts of their source and destination; receiver [H] and
    node [H]: the part that has a row in its halo, and the row's node, each pair once.
    """

    part: Integers
    edges: Integers
    receiver: Integers
    node: Integers

    @property
    def parts(self) -> int:
        return len(self.edges)


def finest_cut(edge_index: Integers, part: Integers, parts: int) -> FinestCut:
    """Counts the edges between parts and lists the halo rows: [2, E], [N], P."""
    source, destination = part[edge_index]
    edges = np.bincount(source * parts + destination, minlength=parts**2).reshape(parts, parts)
    crossing = source != destination
    # Either end of a cut edge is in the halo of the other's part.
    receiver = np.concatenate([destination[crossing], source[crossing]]).astype(np.int64)
    node = np.concatenate([edge_index[0, crossing], edge_index[1, crossing]])
    pairs = np.unique(receiver * len(part) + node)
    return FinestCut(part, edges, pairs // len(part), pairs % len(part))


def exchanged_rows(cut: FinestCut, parts: int) -> Integers:
    """Counts the rows that each of K parts sends to each other: [sender, receiver], [K, K]."""
    owner = cut.part[cut.node].astype(np.int64) * parts // cut.parts
    receiver = cut.receiver * parts // cut.parts
    outside = owner != receiver
    # Parts that are merged may have the same row in their halos.
    _, once = np.unique((receiver * len(cut.part) + cut.node)[outside], return_index=True)
    pairs = owner[outside][once] * parts + receiver[outside][once]
    return np.bincount(pairs, minlength=parts**2).reshape(parts, parts)


def volumes(cut: FinestCut, parts: int) -> dict[str, Any]:
    """Counts what K parts compute and exchange.

    cut_edges: of different parts; largest_edges: those of the part that computes the most, cut ones
    included. halo_rows: of all parts; largest_halo: of one part. neighbours: parts that a part
    exchanges rows with, mean and most. hosts: by ranks on a host and placement, `between_hosts`.
    """
    fold = cut.parts // parts
    edges = cut.edges.reshape(parts, fold, parts, fold).sum((1, 3))
    inside, rows = np.diag(edges), exchanged_rows(cut, parts)
    neighbours = ((rows + rows.T) > 0).sum(0)
    return {
        "parts": parts,
        "cut_edges": int(edges.sum() - inside.sum()),
        "largest_edges": int((edges.sum(0) + edges.sum(1) - inside).max()),
        "halo_rows": int(rows.sum()),
        "largest_halo": int(rows.sum(0).max()),
        "neighbours": {"mean": float(neighbours.mean()), "most": int(neighbours.max())},
        "hosts": {str(ranks): placed(rows, ranks) for ranks in HOSTS if parts > ranks},
    }


def placed(rows: Integers, ranks: int) -> dict[str, dict[str, float]]:
    """Counts rows between hosts of so many ranks, by placement; means over draws."""
    draw = np.random.default_rng(0)
    found = {}
    for name, place in PLACEMENTS.items():
        draws = DRAWS if name == "random" else 1
        each = [between_hosts(rows, place(len(rows), ranks, draw)) for _ in range(draws)]
        found[name] = {key: float(np.mean([one[key] for one in each])) for key in each[0]}
    return found


def between_hosts(rows: Integers, host: Integers) -> dict[str, int]:
    """Counts what crosses hosts, given rows [sender, receiver] and the host of each part.

    rows: of all parts; largest: those that one part receives; messages: the most parts on other
    hosts that a part exchanges rows with.
    """
    crossing = np.where(host[:, None] != host[None, :], rows, 0)
    return {
        "rows": int(crossing.sum()),
        "largest": int(crossing.sum(0).max()),
        "messages": int(((crossing + crossing.T) > 0).sum(0).max()),
    }
