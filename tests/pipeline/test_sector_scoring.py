"""A graph is cut for ranks only where that leaves each with few enough edges."""

import pytest

from bigtrk.errors import InputError
from bigtrk.pipeline.track_making import cut_for_ranks
from tests.distributed.graphs import random_graph

GRAPH = random_graph(seed=1, n_nodes=60, n_edges=300)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_no_rank_holds_more_edges_than_it_may(ranks: int) -> None:
    sectors = cut_for_ranks(GRAPH, ranks, 300)
    assert [sector.part for sector in sectors] == list(range(ranks))
    most = max(sector.n_edges for sector in sectors)
    assert len(cut_for_ranks(GRAPH, ranks, most)) == ranks
    told = rf"event000000001: of its 300 edges a rank would hold {most} on {ranks} rank\(s\); start"
    with pytest.raises(InputError, match=told):
        cut_for_ranks(GRAPH, ranks, most - 1)


def test_fewer_hits_than_ranks_are_not_cut() -> None:
    told = "its 60 hits are too few for 61 ranks; raise --max-edges 10"
    with pytest.raises(InputError, match=told):
        cut_for_ranks(GRAPH, 61, 10)
