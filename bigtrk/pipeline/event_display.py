"""`bigtrk display`: writes a page that shows one event with its scored edges and its tracks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bigtrk.config import nearest
from bigtrk.errors import InputError, number_of, printable
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.truth import hit_particles
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.pipeline.models import load_scorer
from bigtrk.pipeline.stages import CLASSIFIER, classified, load_pipeline
from bigtrk.records.pipeline import is_pipeline
from bigtrk.records.run_folder import read_run_if_any
from bigtrk.reports.display import EventPicture, display_report
from bigtrk.reports.page import write_page
from bigtrk.tracks.builders.builder import TrackBuilder
from bigtrk.tracks.builders.registry import make_builder
from bigtrk.tracks.evaluation import budget_matching, listed_particles, true_particles
from bigtrk.tracks.matching import Criteria, match_tracks
from bigtrk.tracks.names import BuilderName
from bigtrk.training.run_folder import run_of
from partition.cutting import CutSettings, divide
from partition.partitioners import Method


def display_event(
    folder: Path,
    data: Path,
    page: Path,
    criteria: Criteria,
    wanted: str | None,
    parts: int | None,
    of_run: tuple[BuilderName, float | None],
    device: torch.device,
) -> None:
    """Writes the page of one event in `data`: a graph, scored by the final model of the run in
    `folder`; or hits, if `folder` holds a pipeline. Raises InputError if it cannot be read or cut.

    wanted: its name; None: the first. parts: number of sectors. of_run: builder and cut for a run.
    """
    builder: TrackBuilder
    truth = sector = None
    if is_pipeline(folder):
        run, made_by = folder / CLASSIFIER, "the pipeline's merge tree"
        pipeline = load_pipeline(folder, device)
        event = read_event(data, _chosen(find_events(data), wanted, data))
        graph, _ = pipeline.graph(event)
        edges, builder = classified(graph, pipeline.classifier), pipeline.builder
        if event.truth is not None:
            truth = hit_particles(event), true_particles(event)
    else:
        run, graphs = run_of(folder), GraphFolder(data)
        graph = graphs.read(_chosen(graphs.events, wanted, data))
        edges = classified(graph, load_scorer(folder, device))
        builder = made = make_builder(*of_run)
        made_by = f"{of_run[0].value} from edges with a score above {made.score_cut:g}"
        if graph.particle_id is not None and graph.particles is not None:
            truth = graph.particle_id.numpy(), listed_particles(graph.particles)
    if parts is not None:
        if parts > (n := graph.n_nodes):
            raise InputError(f"--parts {parts}: must be at most {n:,}, the hits in {graph.name}")
        sector = divide(graph, CutSettings(parts, None, Method.METIS, seed=0))[0]
    tracks, scores = builder(edges, criteria.min_hits), edges.scores.astype(np.float64)
    picture = EventPicture(edges.position, edges.edge_index, scores, tracks, sector)
    if truth is not None:
        judged = match_tracks(tracks, *truth, budget_matching(criteria.matchings()))
        particle = truth[1].particle_id[judged.particle]
        picture = replace(
            picture,
            particle_id=truth[0],
            found=particle[judged.reconstructed],
            lost=particle[~judged.reconstructed],
            fake=judged.track_id[~judged.matched],
        )
    least = number_of(criteria.min_hits, "hit")
    told = {
        "data": printable(str(data.resolve())),
        "tracks by": made_by,
        "to be found": f"particles of {least} and {criteria.pt_min:g} GeV or more",
        "sectors": "not cut" if parts is None else f"{parts}, by METIS",
    }
    if run == folder.parent:
        told["weights"] = printable(folder.name)
    write_page(display_report(graph.name, picture, told, read_run_if_any(run)), page)


def _chosen(events: Sequence[str], wanted: str | None, data: Path) -> str:
    if not events:
        raise InputError(f"{data}: holds no events; name another folder")
    if wanted is not None and wanted not in events:
        raise InputError(f"{data}: holds no event {wanted!r}{nearest(wanted, events, events[:20])}")
    return wanted or events[0]
