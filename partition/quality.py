"""The quality of a cut: figures of one event, and of many together."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from bigtrk.graphs.sector import Sector
from partition.adjacency import Integers

Counts = list[dict[str, Any]]  # "sectors" of a sector file's record


def computed_edges(edge_index: Integers, part: Integers, parts: int) -> Integers:
    """Counts the edges that touch each part, which its rank computes: [2, E], [N] -> [parts]."""
    # One byte for each end: of a large graph new memory takes longer than looking up.
    owner = part.astype(np.min_scalar_type(max(parts - 1, 0)))
    source, destination = (owner.take(ends) for ends in edge_index)
    inside_or_in = np.bincount(destination, minlength=parts)
    return inside_or_in + np.bincount(source[source != destination], minlength=parts)


def figures(sectors: list[Sector]) -> dict[str, float]:
    """Computes the figures of one event.

    cut_fraction: cut edges / edges. halo_fraction: halo rows of all sectors / nodes.
    edge_imbalance: largest / mean number of computed edges, over sectors.
    neighbours: mean number of sectors that a sector exchanges rows with.
    """
    nodes, edges = sectors[0].event_nodes, sectors[0].event_edges
    computed = [sector.n_edges for sector in sectors]
    exchanges = [
        sum(
            sent + received > 0 for sent, received in zip(s.send_splits, s.recv_splits, strict=True)
        )
        for s in sectors
    ]
    return {
        "cut_fraction": _ratio(sum(computed) - edges, edges),
        "halo_fraction": _ratio(sum(s.n_nodes - s.n_owned for s in sectors), nodes),
        "edge_imbalance": _ratio(max(computed) * len(sectors), sum(computed), empty=1.0),
        "neighbours": sum(exchanges) / len(sectors),
    }


def overall(records: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Computes the figures of all events together, from their files' records.

    Fractions are those of the union of the events. edge_imbalance is the sum of the events'
    largest sectors over the sum of their means: the price of waiting for the slowest rank.
    seconds and metis_seconds are sums.
    """
    events = list(records)
    computed = [[s["edges"] for s in r["sectors"]] for r in events]
    edges = sum(r["edges"] for r in events)
    halo = sum(s["halo"] for r in events for s in r["sectors"])
    means = sum(sum(c) / len(c) for c in computed)
    sectors = sum(len(c) for c in computed)
    return {
        "cut_fraction": _ratio(sum(map(sum, computed)) - edges, edges),
        "halo_fraction": _ratio(halo, sum(r["nodes"] for r in events)),
        "edge_imbalance": _ratio(sum(map(max, computed)), means, empty=1.0),
        "neighbours": sum(r["quality"]["neighbours"] * r["parts"] for r in events) / sectors,
        "seconds": sum(r["quality"]["seconds"] for r in events),
        "metis_seconds": sum(r["quality"]["metis_seconds"] for r in events),
    }


def _ratio(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole else empty
