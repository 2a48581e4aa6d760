"""The size of an event, whole and in sectors, and laws for the cut edges and halos of METIS's cuts.

Each half of a part is cut again across a surface, so the edges cut in K parts grow as K^g - 1. The
law was fitted to counts by scripts/scaling/partition_volumes.py. Shapes: N nodes, E edges, K parts.
"""

from dataclasses import dataclass
from typing import Any

FEWEST_NODES = 1e5


@dataclass(frozen=True)
class PowerLaw:
    """The law factor (E/N)^degree (N/100,000)^nodes (K^parts - 1) for an event of N nodes and E
    edges in K parts. Fewer nodes than 100,000 count as 100,000, since no smaller event was fitted.
    """

    factor: float
    degree: float
    nodes: float
    parts: float

    def __call__(self, nodes: float, edges: float, parts: int) -> float:
        if not nodes:
            return 0.0
        size = max(1.0, nodes / FEWEST_NODES)
        event = (edges / nodes) ** self.degree * size**self.nodes
        return float(self.factor * event * (parts**self.parts - 1))


# Cut edges / edges, and halo rows / nodes, fitted to events of 0.34 M to 44 M edges in 2 to 256
# parts (docs/results/partition_volumes.json): off by a fifth in the median, by up to 70 %.
CUT = PowerLaw(factor=1.16e-3, degree=1.094, nodes=-0.82, parts=0.515)
HALO = PowerLaw(factor=4.15e-3, degree=1.13, nodes=-0.72, parts=0.53)
# In nine of ten cuts the largest part exceeds the mean by at most MOST_EXCESS x (imbalance() - 1)
# (40 graphs of HEPTrkX in 8 to 32 parts, 3.0 M edges in 8 to 64).
MOST_EXCESS = 4.0
# The limit, for many parts, of the mean number of parts that a part exchanges rows with: 22 of 64
# and 28 of 256 with 3.0 M edges, 10 and 17 with 43.6 M.
MOST_NEIGHBOURS = 32


def imbalance(edges: float, parts: int) -> float:
    """Estimates the largest number of edges that a part computes, divided by the mean.

    Each halving adds to it, and parts of a few hundred edges differ by single ones. Fitted by hand
    to the events of the laws above and to medians of 40 graphs of HEPTrkX and of simulated events
    of 5, 14 and 60 thousand edges, in up to 64 parts: off by 0.8 % in the median, by up to 7 %.
    """
    if parts == 1 or not edges:
        return 1.0
    return float(1 + 2.7e-3 * (parts - 1) ** 0.7 + 4.5 * parts / edges)


def neighbours(parts: int) -> float:
    """Estimates the number of parts with which one of `parts` parts exchanges rows."""
    return (parts - 1) / (1 + (parts - 1) / MOST_NEIGHBOURS)


@dataclass(frozen=True)
class SectorSize:
    """The largest sector of an event: local edges (with cut edges), owned nodes, halo rows."""

    edges: float
    owned: float
    halo: float = 0.0

    @property
    def nodes(self) -> float:
        return self.owned + self.halo


@dataclass(frozen=True)
class EventSize:
    """An event's nodes and edges, and the number of sectors in which it is stored. cut, halo,
    excess: cut edges, halo rows, and the excess of the largest sector's edges over the mean's, each
    divided by the estimate for METIS above.
    """

    nodes: float
    edges: float
    stored: int = 1
    cut: float = 1.0
    halo: float = 1.0
    excess: float = 1.0

    def sector(self, parts: int) -> SectorSize:
        """Estimates the size of the largest of `parts` sectors."""
        if parts == 1:
            return SectorSize(self.edges, self.nodes)
        largest = 1 + self.excess * (imbalance(self.edges, parts) - 1)
        # A sector cannot hold more than the event's edges and its other nodes.
        crossing = min(1.0, self.cut * CUT(self.nodes, self.edges, parts))
        edges = min(1.0, (1 + crossing) * largest / parts) * self.edges
        halo = min(self.halo * HALO(self.nodes, self.edges, parts) / parts, 1 - 1 / parts)
        return SectorSize(edges, self.nodes / parts, halo * self.nodes)


def event_size(record: dict[str, Any]) -> EventSize:
    """Returns the size of an event from the record of its graph or of its cut."""
    quality, parts = record.get("quality"), record.get("parts", 1)
    nodes, edges = record["nodes"], record["edges"]
    if not quality or parts == 1:
        return EventSize(nodes, edges, parts)
    return EventSize(
        nodes=nodes,
        edges=edges,
        stored=parts,
        cut=_relative(quality["cut_fraction"], CUT(nodes, edges, parts)),
        halo=_relative(quality["halo_fraction"], HALO(nodes, edges, parts)),
        excess=_relative(quality["edge_imbalance"] - 1, imbalance(edges, parts) - 1),
    )


def _relative(measured: float, law: float) -> float:
    return measured / law if law else 1.0  # an event without edges has no cut
