"""A graph is cut for ranks only where that leaves each with few enough edges."""

import pytest

from bigtrk.errors import InputError
from bigtrk.pipeline.track_making import cut_for_ranks
from tests.distributed.graphs import random_graph

GRAPH = random_graph(seed=1, n_nodes=60, n_edges=300)


def test_no_rank_holds_more_edges_than_it_may() -> None:
    for ranks in (1, 2, 3):
        sectors = cut_for_ranks(GRAPH, ranks, 300)
        assert [sector.part for sector in sectors] == list(range(ranks))
        most = max(sector.n_edges for sector in sectors)
        assert len(cut_for_ranks(GRAPH, ranks, most)) == ranks
        told = rf"event000000001: with {ranks} ranks?, the largest share is {most} of 300 edges"
        with pytest.raises(InputError, match=told):
            cut_for_ranks(GRAPH, ranks, most - 1)
    with pytest.raises(InputError, match="has 60 hits, too few to share among 61 ranks"):
        cut_for_ranks(GRAPH, 61, 10)
