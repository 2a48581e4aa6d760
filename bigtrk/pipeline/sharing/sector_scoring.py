"""A graph with more edges than a rank may hold: cut on the rank that made it, scored on all."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.sector import Sector
from bigtrk.parallel.halo import halo_plan
from bigtrk.parallel.world import World
from bigtrk.pipeline.scoring import EdgeScorer
from bigtrk.tracing import waiting
from bigtrk.training.evaluation.scoring import stitched
from partition.cutting import CutSettings, divide
from partition.partitioners import Method
from partition.sectors import cut


def cut_for_ranks(graph: EventGraph, ranks: int, max_edges: int) -> list[Sector]:
    """Cuts a graph into a sector for each rank.

    Raises:
        InputError: one would have more than `max_edges` edges, or there are fewer hits than ranks.
    """
    if graph.n_nodes < ranks:
        raise InputError(
            f"{graph.name}: its {graph.n_nodes} hits are too few for {ranks} ranks; raise "
            f"--max-edges {max_edges}, so that one rank scores them"
        )
    settings = CutSettings(parts=ranks, max_edges=None, method=Method.METIS, seed=0)
    part, parts, _ = divide(graph, settings)
    sectors = cut(graph, torch.from_numpy(part), parts)
    largest = max(sector.n_edges for sector in sectors)
    if largest > max_edges:
        raise InputError(
            f"{graph.name}: of its {graph.n_edges:,} edges a rank would hold {largest:,} on "
            f"{ranks} rank(s); start more, or raise --max-edges {max_edges}, on CPUs with "
            f"--spill FOLDER where memory has no room for so many"
        )
    return sectors


def score_in_sectors(
    scorer: EdgeScorer, sectors: Sequence[Sector] | None, owner: int, world: World
) -> Tensor:
    """Scores the edges of the graph that rank `owner` has cut into `sectors`, None on the others,
    one on each rank: [E] float64 in [0, 1], on all ranks. Collective.

    Whatever is wrong with the graph must be found before, since a rank that fails alone would leave
    the others waiting.
    """
    received: list[Any] = [None]
    with waiting():
        dist.scatter_object_list(received, None if sectors is None else list(sectors), src=owner)
    sector: Sector = received[0]
    plan = halo_plan([sector], sector.parts, world)
    scores = scorer.scores(scorer.inputs(sector), lambda owned: plan([owned])[0])
    return stitched([sector], [[scores]], sector.parts, world.groups)[:, 0]
