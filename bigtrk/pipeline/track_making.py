"""Makes the tracks of events, each on one rank; ranks share the edges of large events.

A graph with more edges than a rank may hold is cut on the rank that made it, and scored on all.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bigtrk.errors import InputError, number_of
from bigtrk.graphs.event_graph import EventGraph, Sector
from bigtrk.parallel.collectives import attempted, gather_items
from bigtrk.parallel.halo import halo_plan
from bigtrk.parallel.world import World
from bigtrk.pipeline.models import EdgeScorer
from bigtrk.pipeline.options import MakingOptions
from bigtrk.pipeline.stages import Passage, tracks_of
from bigtrk.tracing import waiting
from bigtrk.tracks.builders.builder import TrackBuilder
from bigtrk.tracks.matching import Ids
from bigtrk.training.evaluation.scoring import stitched
from bigtrk.training.guards import report_out_of_memory
from partition.cutting import CutSettings, divide
from partition.partitioners import Method
from partition.sectors import cut


def cut_for_ranks(graph: EventGraph, ranks: int, max_edges: int) -> list[Sector]:
    """Cuts a graph into one sector per rank; InputError if one has over `max_edges` edges."""
    if graph.n_nodes < ranks:
        raise InputError(
            f"{graph.name}: has {number_of(graph.n_nodes, 'hit')}, too few to share among "
            f"{ranks} ranks; raise --max-edges, so that one rank takes it whole"
        )
    settings = CutSettings(parts=ranks, max_edges=None, method=Method.METIS, seed=0)
    part, parts, _ = divide(graph, settings)
    sectors = cut(graph, torch.from_numpy(part), parts)
    largest = max(sector.n_edges for sector in sectors)
    if largest > max_edges:
        raise InputError(
            f"{graph.name}: with {number_of(ranks, 'rank')}, the largest share is {largest:,} of "
            f"{graph.n_edges:,} edges, more than --max-edges {max_edges}; start more ranks, or "
            "raise --max-edges (on CPUs --spill FOLDER keeps edges on a disk)"
        )
    return sectors


def score_in_sectors(
    scorer: EdgeScorer, sectors: Sequence[Sector] | None, owner: int, world: World
) -> Tensor:
    """Scores a graph's edges on all ranks: rank `owner` has cut it into `sectors`, one per rank;
    other ranks pass None. Returns the scores [E], float64 in [0, 1], on all ranks. Collective:
    check the graph before, since a rank that fails alone leaves the others waiting.
    """
    received: list[Any] = [None]
    with waiting():
        dist.scatter_object_list(received, None if sectors is None else list(sectors), src=owner)
    sector: Sector = received[0]
    plan = halo_plan([sector], sector.parts, world)
    scores = scorer.scores(scorer.inputs(sector), lambda owned: plan([owned])[0])
    return stitched([sector], [[scores]], sector.parts, world.groups)[:, 0]


_FOR_AN_EVENT = (
    "give --max-edges N, below its edges after the filter, and start more ranks; on CPUs --spill "
    "FOLDER keeps edges between layers in files"
)
_FOR_ALL = "start more ranks, so that each holds fewer edges, or on CPUs add --spill FOLDER"


@dataclass(frozen=True)
class _Begun:
    """A graph to score: on this rank alone or, cut into `sectors`, one on each rank."""

    graph: EventGraph
    passage: Passage
    sectors: list[Sector] | None


@dataclass(frozen=True)
class TrackMaker:
    """Makes the tracks of an event: builds its graph, scores the edges, builds tracks from both."""

    graph: Callable[[str], tuple[EventGraph, Passage]]  # by an event's name
    classifier: EdgeScorer
    builder: TrackBuilder
    options: MakingOptions
    world: World

    def __call__(self, name: str | None) -> tuple[Ids, Ids, Passage] | None:
        """Returns an event's hit_id [N], the track of each hit [N], and its Passage; None if `name`
        is None (no event for this rank). Collective if there is a limit of edges. Raises InputError
        if the event has no graph, lacks what a stage reads, or is too large for these ranks.
        """
        begun = attempted(lambda: None if name is None else self._begin(name))
        shared = None if self.options.max_edges is None else self._share(begun)
        mine = begun.result()
        return None if mine is None else self._finish(mine, shared)

    def _begin(self, name: str) -> _Begun:
        with report_out_of_memory(f"{name}: this rank", _FOR_AN_EVENT, InputError):
            graph, passage = self.graph(name)
        n_ranks, most = self.world.ranks.world_size, self.options.max_edges
        if most is None or graph.n_edges <= most:
            return _Begun(graph, passage, None)
        with passage.stage("classifier"):
            sectors = cut_for_ranks(graph, n_ranks, most)
            # Its faults must show before ranks share it.
            self.classifier.inputs(sectors[0])
            for sector in sectors:
                self.classifier.features.computed.of(sector)
        passage.notes.append(
            f"is scored in {n_ranks} sectors, as its {graph.n_edges:,} edges are more than {most:,}"
        )
        return _Begun(graph, passage, sectors)

    def _share(self, begun: Future[_Begun | None]) -> Tensor | None:
        """Scores all ranks' cut graphs in turn; returns this rank's own scores [E]. Collective."""
        mine = None if begun.exception() else begun.result()
        has_cut = gather_items(mine is not None and mine.sectors is not None)
        own = None
        for owner in (rank for rank, has in enumerate(has_cut) if has):
            one = mine if owner == self.world.ranks.rank else None
            passage, sectors = (one.passage, one.sectors) if one else (Passage(), None)
            who = f"rank {self.world.ranks.rank}"
            with report_out_of_memory(who, _FOR_ALL), passage.stage("classifier"):
                scores = score_in_sectors(self.classifier, sectors, owner, self.world)
            own = scores if one else own
        return own

    def _finish(self, begun: _Begun, shared: Tensor | None) -> tuple[Ids, Ids, Passage]:
        def score(graph: EventGraph) -> Tensor:
            return self.classifier(graph) if shared is None else shared

        graph, passage = begun.graph, begun.passage
        assert graph.hit_id is not None, "tracks list hits by their ids"
        with report_out_of_memory(f"{graph.name}: this rank", _FOR_AN_EVENT, InputError):
            tracks = tracks_of(graph, score, self.builder, self.options.min_hits, passage)
        return graph.hit_id.numpy(), tracks, passage
