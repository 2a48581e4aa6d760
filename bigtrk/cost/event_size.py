"""The size of an event, whole and in sectors."""

from dataclasses import dataclass
from typing import Any

# METIS on event 1000 with 3.0 M edges: cut edges and halo rows in 8 parts, and how they grow with
# the number of parts, as surfaces do (measured for 2 to 256 parts on 0.34 M and 3.0 M edges).
CUT_8, HALO_8, GROWTH, IMBALANCE = 0.09, 0.36, 0.55, 1.03
# Number of sectors that a sector exchanges rows with: 23 of 64, 27 of 256 in the same cuts.
NEIGHBOURS = 27


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
    """Nodes and edges of an event, the number of sectors it is stored in, and the quality of a
    cut in 8: cut edges / edges, halo rows / nodes, largest sector / mean.
    """

    nodes: float
    edges: float
    stored: int = 1
    cut_8: float = CUT_8
    halo_8: float = HALO_8
    imbalance: float = IMBALANCE

    def sector(self, parts: int) -> SectorSize:
        """Estimates the size of the largest of `parts` sectors."""
        if parts == 1:
            return SectorSize(self.edges, self.nodes)
        growth = (parts / 8) ** GROWTH
        edges = self.edges * (1 + min(1.0, self.cut_8 * growth)) * self.imbalance / parts
        # A sector cannot hold more than the event's other nodes.
        halo = min(self.halo_8 * growth / parts, 1 - 1 / parts) * self.nodes
        return SectorSize(edges, self.nodes / parts, halo)


def event_size(record: dict[str, Any]) -> EventSize:
    """Returns the size that the record of a graph or of a cut event gives."""
    quality, parts = record.get("quality"), record.get("parts", 1)
    if not quality or parts == 1:
        return EventSize(record["nodes"], record["edges"], parts)
    scale = (8 / parts) ** GROWTH
    return EventSize(
        nodes=record["nodes"],
        edges=record["edges"],
        stored=parts,
        cut_8=quality["cut_fraction"] * scale,
        halo_8=quality["halo_fraction"] * scale,
        imbalance=quality["edge_imbalance"],
    )
