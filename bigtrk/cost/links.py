"""The time of collectives: a latency and a bandwidth per link.

Source: R. Thakur et al., "Optimization of collective communication operations in MPICH" (2005); a
ring all-reduce moves 2 (n - 1) / n of its bytes in 2 (n - 1) messages, a tree all of them twice in
2 log2 n messages. Libraries choose by size, so the faster of the two is taken here.
"""

import math

from pydantic import Field

from bigtrk.config import Settings
from bigtrk.cost.cut_law import Exchange


class Link(Settings):
    """Seconds of one message without content, and bytes per second and direction of one rank."""

    latency: float = Field(ge=0)
    bandwidth: float = Field(gt=0)

    def seconds(self, messages: float, n_bytes: float) -> float:
        return messages * self.latency + n_bytes / self.bandwidth


class Network(Settings):
    """Ranks in nodes: `within` joins those of a node, `between` those of different nodes."""

    within: Link
    between: Link

    def slowest(self, ranks: int, ranks_per_node: int) -> Link:
        """Returns the link that a collective of `ranks` neighbouring ranks waits for."""
        return self.within if ranks <= ranks_per_node else self.between


def all_reduce(link: Link, ranks: int, n_bytes: float) -> float:
    """Returns the seconds to sum `n_bytes` over `ranks`, by ring or tree."""
    if ranks == 1:
        return 0.0
    ring = link.seconds(2 * (ranks - 1), 2 * (ranks - 1) / ranks * n_bytes)
    return min(ring, link.seconds(2 * math.log2(ranks), 2 * n_bytes))


def all_gather(link: Link, ranks: int, n_bytes: float) -> float:
    """Returns the seconds to gather shards of `n_bytes` in all, or to reduce and scatter them."""
    if ranks == 1:
        return 0.0
    return link.seconds(math.log2(ranks), (ranks - 1) / ranks * n_bytes)


def exchange(network: Network, volume: Exchange, n_bytes: float) -> float:
    """Returns the seconds to swap rows of `n_bytes` with other ranks. What stays within the host
    takes its own link meanwhile.
    """
    within = network.within.seconds(volume.messages_within, volume.rows_within * n_bytes)
    between = network.between.seconds(volume.messages_between, volume.rows_between * n_bytes)
    return max(within, between)
