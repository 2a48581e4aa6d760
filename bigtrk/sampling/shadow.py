"""ShaDow mini-batches of an event; the next ones are sampled while the present one is computed.

ShaDow (Zeng et al., NeurIPS 2021, algorithm 2 of Tripathy et al.): a subgraph has all edges among
the nodes that a random walk from a root touches. The walk has `depth` hops along at most `fanout`
edges of each node. As in PyG's ShaDowKHopSampler and acorn, it goes against the edges, from
destination to source (inwards, in a graph of inner to outer hits), and a node that two steps reach
is expanded twice. The edges of a node are drawn uniformly, unlike PyG's (torch-sparse 0.6.18),
which draws the last one too rarely.

As in Tripathy et al. and acorn, the loss is taken on all edges of all subgraphs. An edge that lies
in the subgraphs of several roots counts in each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from bigtrk.graphs.event_graph import Sector, columns_at
from bigtrk.process import Prefetcher
from bigtrk.sampling.engines import fastest, sample_bulk
from bigtrk.sampling.subgraphs import (
    InEdges,
    Rows,
    Sampler,
    Seed,
    Subgraphs,
    Walk,
    entropy,
    epoch_key,
    in_edges,
)


def epoch_roots(
    n_nodes: int, batch_size: int, seed: Seed, epoch: int, rank: int = 0, ranks: int = 1
) -> list[Rows]:
    """Returns this rank's roots in each mini-batch of an epoch, shuffled.

    A mini-batch has `batch_size` roots, shared out among all ranks, so a step does not depend on
    their number. Every node is a root exactly once. The last mini-batch has the rest. Every rank
    has the same number of mini-batches; if there are fewer roots than ranks, some ranks have none.
    """
    order = np.random.default_rng(entropy(seed, epoch)).permutation(n_nodes)
    return [order[i : i + batch_size][rank::ranks] for i in range(0, n_nodes, batch_size)]


@dataclass(frozen=True)
class ShaDow:
    """Samples mini-batches of `batch_size` roots over all ranks, `bulk` of them at once (k)."""

    walk: Walk = field(default_factory=Walk)
    batch_size: int = 256
    bulk: int = 8
    _prefetcher: Prefetcher = field(
        default_factory=Prefetcher, init=False, repr=False, compare=False
    )

    def batches(
        self,
        whole: Sector,
        device: torch.device,
        seed: Seed,
        epoch: int,
        rank: int = 0,
        ranks: int = 1,
        first: int = 0,
    ) -> Iterator[Sector]:
        """Yields this rank's mini-batches of an epoch, from number `first` on, in CPU memory. A
        thread samples them on `device`, one bulk ahead.
        """
        roots = epoch_roots(whole.n_nodes, self.batch_size, seed, epoch, rank, ranks)[first:]
        graph, key = in_edges(whole.edge_index, whole.n_nodes), epoch_key(seed, epoch)
        engine = fastest(device)
        bulks = [roots[i : i + self.bulk] for i in range(0, len(roots), self.bulk)]
        samples = (partial(self._sample, whole, graph, bulk, key, engine) for bulk in bulks)
        for result in self._prefetcher.each(samples):
            yield from result()

    def _sample(
        self, whole: Sector, graph: InEdges, batches: Sequence[Rows], key: int, engine: Sampler
    ) -> list[Sector]:
        found = sample_bulk(graph, batches, self.walk, key, engine)
        return [shadow_sector(whole, subgraphs) for subgraphs in found]


def shadow_sector(whole: Sector, subgraphs: Subgraphs) -> Sector:
    """Joins the subgraphs into one sector, with values from `whole`, the event's only sector.

    A node or edge has a row in each subgraph that contains it. So node_id and edge_id repeat, and
    nodes and edges are sorted only within each subgraph.
    """
    assert whole.parts == 1, "subgraphs are sampled from whole events"
    node, edge = subgraphs.node, subgraphs.edge
    return replace(
        whole,
        n_owned=len(node),
        edge_index=subgraphs.edge_index,
        node_id=whole.node_id[node],
        edge_id=whole.edge_id[edge],
        owns_edge=torch.ones(len(edge), dtype=torch.bool),
        **columns_at([whole], node, edge),
    )
