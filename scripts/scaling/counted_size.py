"""The size of an event whose sectors were counted, by partition_volumes.py, and not estimated."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bigtrk.cost.event_size import EventSize, Exchange, event_size


@dataclass(frozen=True)
class Crossing:
    """The most that a sector exchanges with other hosts: the share of its halo rows that comes from
    them, and the messages to them.
    """

    share: float
    messages: float


@dataclass(frozen=True, kw_only=True)
class CountedSize(EventSize):
    """An event in the number of sectors that it is `stored` in. Its sectors are as large as the
    largest that was counted and exchange as much as the one that exchanges most; those of an event
    scaled to another size differ from these as the law's do (bigtrk/cost/cut_law.py).

    neighbours: the most parts that a part exchanges rows with. tree, anywhere: what crosses hosts
    where the ranks of a host follow each other, and where they do not.
    """

    neighbours: float
    tree: Crossing
    anywhere: Crossing

    def exchange(self, parts: int, ranks_per_node: int, in_a_row: bool = True) -> Exchange:
        """Returns what the sector that exchanges most does, within its host and with others.

        in_a_row: the ranks of a host follow each other; else they are anywhere.
        """
        crossing, halo = self.tree if in_a_row else self.anywhere, self.sector(parts).halo
        within = min(self.neighbours, min(parts, ranks_per_node) - 1)
        share = crossing.share
        return Exchange((1 - share) * halo, share * halo, within, crossing.messages)


def counted_size(
    event: Mapping[str, Any], cut: Mapping[str, Any], ranks_per_node: int
) -> CountedSize:
    """Returns the size of an event of partition_volumes.json in one of its cuts, with so many ranks
    on a host (4 or 8 were counted).
    """
    nodes, edges, parts = event["nodes"], event["edges"], cut["parts"]
    quality = {
        "cut_fraction": cut["cut_edges"] / edges,
        # Of the part with most: ranks wait for it.
        "halo_fraction": parts * cut["largest_halo"] / nodes,
        "edge_imbalance": parts * cut["largest_edges"] / (edges + cut["cut_edges"]),
    }
    size = event_size({"nodes": nodes, "edges": edges, "parts": parts, "quality": quality})
    hosts = cut["hosts"][str(ranks_per_node)] if parts > ranks_per_node else None
    ways = [_crossing(hosts[way], cut) if hosts else Crossing(0, 0) for way in ("tree", "random")]
    neighbours = cut["neighbours"]["most"]
    return CountedSize(**asdict(size), neighbours=neighbours, tree=ways[0], anywhere=ways[1])


def _crossing(between: Mapping[str, float], cut: Mapping[str, Any]) -> Crossing:
    return Crossing(between["largest"] / cut["largest_halo"], between["messages"])
