"""The size of an event, whole and in sectors."""

from dataclasses import dataclass
from typing import Any

from bigtrk.cost.cut_law import CUT, HALO, Exchange, exchange_of_sector, imbalance


@dataclass(frozen=True)
class SectorSize:
    """The largest sector of an event: local edges (cut ones included), owned nodes, halo rows."""

    edges: float
    owned: float
    halo: float = 0.0

    @property
    def nodes(self) -> float:
        return self.owned + self.halo


@dataclass(frozen=True)
class EventSize:
    """Nodes and edges of an event, the number of sectors it is stored in, and the quality of its
    cut relative to what METIS's laws give (cut_law.py): cut edges, halo rows, and the
    largest sector's edges beyond the mean's.
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
        edges = min(1.0, (1 + self._crossing(parts)) * largest / parts) * self.edges
        halo = min(self.halo * HALO(self.nodes, self.edges, parts) / parts, 1 - 1 / parts)
        return SectorSize(edges, self.nodes / parts, halo * self.nodes)

    def interior(self, parts: int) -> float:
        """Estimates the share of a sector's edges that read no halo node."""
        if parts == 1:
            return 1.0
        crossing = self._crossing(parts)
        return (1 - crossing) / (1 + crossing)

    def _crossing(self, parts: int) -> float:
        """Estimates the share of the edges that are cut."""
        return min(1.0, self.cut * CUT(self.nodes, self.edges, parts))

    def exchange(self, parts: int, ranks_per_node: int, in_a_row: bool = True) -> Exchange:
        """Estimates what the largest of `parts` sectors exchanges within its host and with others.

        in_a_row: the ranks of a host follow each other; else they are anywhere.
        """
        return exchange_of_sector(self.sector(parts).halo, parts, ranks_per_node, in_a_row)


def event_size(record: dict[str, Any]) -> EventSize:
    """Returns the size that the record of a graph or of a cut event gives."""
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
