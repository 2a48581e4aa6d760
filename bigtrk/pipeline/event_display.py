"""`bigtrk display`: one event with its scored edges and its tracks, as a page shows it.

Shapes: N hits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from bigtrk.config import nearest
from bigtrk.errors import InputError, printable
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.truth import hit_particles
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.pipeline.models import load_scorer
from bigtrk.pipeline.stages import CLASSIFIER, classified, load_pipeline
from bigtrk.records.pipeline import is_pipeline
from bigtrk.records.run_folder import read_run_if_any
from bigtrk.reports import write_page
from bigtrk.reports.display import EventPicture, display_report
from bigtrk.tracks.builders.builder import ScoredGraph, TrackBuilder
from bigtrk.tracks.builders.registry import make_builder
from bigtrk.tracks.evaluation import budget_matching, listed_particles, true_particles
from bigtrk.tracks.matching import Criteria, Ids, Particles, match_tracks
from bigtrk.tracks.names import BuilderName
from bigtrk.training.run_folder import run_of
from partition.cutting import CutSettings, divide
from partition.partitioners import Method

MOST_NAMED = 20  # events that a message names


@dataclass(frozen=True)
class DisplayOptions:
    """The choice of what is shown: the `event` (None: the first), the tracks and particles of
    `criteria`, the `parts` to cut the event into; of a run also the builder and its score cut.
    """

    criteria: Criteria
    event: str | None = None
    parts: int | None = None
    builder: BuilderName = BuilderName.COMPONENTS
    score_cut: float | None = None


@dataclass(frozen=True)
class _Scored:
    """An event's graph, its edges with scores, what makes tracks of them, and its truth: the
    particle of each hit [N] and the particles, None where they are not known.
    """

    graph: EventGraph
    edges: ScoredGraph
    builder: TrackBuilder
    particle_id: Ids | None = None
    particles: Particles | None = None


def display_event(
    folder: Path, data: Path, page: Path, options: DisplayOptions, device: torch.device
) -> None:
    """Writes the page of an event of `data`: of a folder of graphs, by the edge model that the run
    in `folder` ended with; of a folder of events, by the pipeline there.

    Raises:
        InputError: the model or the data cannot be read, there is no such event, or it cannot be
            cut into so many parts.
    """
    whole = is_pipeline(folder)
    found = (_by_pipeline if whole else _by_model)(folder, data, options, device)
    run = folder / CLASSIFIER if whole else run_of(folder)
    tracks = found.builder(found.edges, options.criteria.min_hits)
    picture = EventPicture(
        position=found.edges.position,
        edge_index=found.edges.edge_index,
        scores=found.edges.scores.astype(np.float64),
        track_id=tracks,
        sector=_sectors(found.graph, options.parts),
    )
    told = {
        "data": printable(str(data.resolve())),
        "tracks by": "the pipeline's merge tree" if whole else _builder_text(options),
        "to be found": f"particles of at least {options.criteria.min_hits} hits and "
        f"{options.criteria.pt_min:g} GeV",
        "sectors": "not cut" if options.parts is None else f"{options.parts}, by METIS",
    }
    if run == folder.parent:
        told["weights"] = printable(folder.name)
    judged = _judged(picture, found, options.criteria)
    report = display_report(found.graph.name, judged, told, read_run_if_any(run))
    write_page(report, page)


def _by_model(folder: Path, data: Path, options: DisplayOptions, device: torch.device) -> _Scored:
    graphs = GraphFolder(data)
    graph = graphs.read(_chosen([*graphs.events], options.event, data))
    edges = classified(graph, load_scorer(folder, device))
    builder = make_builder(options.builder, options.score_cut)
    if graph.particle_id is None or graph.particles is None:
        return _Scored(graph, edges, builder)
    particles = listed_particles(graph.particles)
    return _Scored(graph, edges, builder, graph.particle_id.numpy(), particles)


def _by_pipeline(
    folder: Path, data: Path, options: DisplayOptions, device: torch.device
) -> _Scored:
    pipeline = load_pipeline(folder, device)
    event = read_event(data, _chosen(find_events(data), options.event, data))
    graph, _ = pipeline.graph(event)
    found = _Scored(graph, classified(graph, pipeline.classifier), pipeline.builder)
    if event.truth is None:
        return found
    return replace(found, particle_id=hit_particles(event), particles=true_particles(event))


def _judged(picture: EventPicture, found: _Scored, criteria: Criteria) -> EventPicture:
    """Adds which particles and tracks match, where there is truth."""
    if found.particle_id is None or found.particles is None:
        return picture
    matching = budget_matching(criteria.matchings())
    judgement = match_tracks(picture.track_id, found.particle_id, found.particles, matching)
    wanted = found.particles.particle_id[judgement.particle]
    return replace(
        picture,
        particle_id=found.particle_id,
        found=wanted[judgement.reconstructed],
        lost=wanted[~judgement.reconstructed],
        fake=judgement.track_id[~judgement.matched],
    )


def _sectors(graph: EventGraph, parts: int | None) -> Ids | None:
    """Cuts an event as `bigtrk partition` does: the sector of each hit [N]."""
    if parts is None:
        return None
    if parts > graph.n_nodes:
        raise InputError(f"--parts {parts}: {graph.name} has {graph.n_nodes} hits; lower it")
    return divide(graph, CutSettings(parts, None, Method.METIS, seed=0))[0]


def _chosen(events: Sequence[str], wanted: str | None, data: Path) -> str:
    if not events:
        raise InputError(f"{data}: holds no events; name another folder")
    if wanted is not None and wanted not in events:
        raise InputError(f"{data}: holds no event {wanted!r}{nearest(wanted, events[:MOST_NAMED])}")
    return events[0] if wanted is None else wanted


def _builder_text(options: DisplayOptions) -> str:
    cut = make_builder(options.builder, options.score_cut).score_cut
    return f"{options.builder.value} from edges with a score above {cut:g}"
