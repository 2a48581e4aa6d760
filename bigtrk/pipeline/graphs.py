"""Stages 2 and 3: radius graphs of events, and graphs without the edges taken for false."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.formats.registry import KEPT_IN_RECORDS, SECTION_THINNERS
from bigtrk.graphs.builders.build_folder import build_with
from bigtrk.graphs.builders.builder import QUALITY, TARGET_HITS, TARGET_PT, first_of_each, shares
from bigtrk.graphs.builders.radius import RadiusBuilder
from bigtrk.graphs.event_graph import EventGraph, Section, Target, target_edges
from bigtrk.graphs.storage.event_folder import ORIGIN, GraphFolder
from bigtrk.graphs.storage.graph_folder import GraphToMake, fill_folder
from bigtrk.pipeline.models import EdgeScorer, cut_for, load_embedding, load_scorer, radius_for

RADIUS_EFFICIENCY = 0.99  # of target edges, unless a radius or another share is asked for


def build_radius_graphs(
    events: Path,
    out: Path,
    run: Path,
    radius: float | None,
    efficiency: float | None,
    names: list[str] | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """Builds the radius graph of each event of `events` in folder `out`; returns the manifest.

    run: that of the embedding. names, prefix: as of `build_with`. The radius is given, or
    else the one that keeps a share `efficiency` of the target edges of the run's validation events,
    by default 0.99.

    Raises:
        InputError: bad input, or an event would have too many edges; graphs built before stay.
    """
    if radius is not None and efficiency is not None:
        raise InputError("give --radius or --efficiency, not both")
    if radius == 0:
        raise InputError("--radius 0 joins no hits; give a larger one, or --efficiency")
    embedding = load_embedding(run)
    if radius is None:
        radius = radius_for(run, RADIUS_EFFICIENCY if efficiency is None else efficiency)
    builder = RadiusBuilder(embedding, embedding.digest, radius)
    return build_with(events, out, builder, names, prefix)


CUT_EFFICIENCY = 0.995  # of target edges, unless a cut or another share is asked for


def filter_folder(
    run: Path, graphs: Path, out: Path, cut: float | None, efficiency: float | None
) -> dict[str, Any]:
    """Writes the graphs of folder `graphs` to folder `out` without the edges below the cut;
    returns the manifest. Graphs already in `out` that were made in the same way are kept.

    run: that of the edge model. The cut is given, or else the score that a share `efficiency` of
    the target edges of the run's validation events reach, by default 0.995.

    Raises:
        InputError: bad input; graphs written before stay.
    """
    if out.resolve() == graphs.resolve():
        raise InputError(
            f"{out}: holds the graphs to be filtered; name another folder for the rest"
        )
    if cut is not None and efficiency is not None:
        raise InputError("give --cut or --efficiency, not both")
    scorer = load_scorer(run)
    if cut is None:
        cut = cut_for(run, CUT_EFFICIENCY if efficiency is None else efficiency)
    folder = GraphFolder(graphs)
    parameters = {
        "from": "graphs",
        "filter": scorer.digest,
        "cut": cut,
        "graphs": folder.manifest["parameters"],
    }
    tasks = _tasks(folder, scorer, cut)
    return fill_folder(out, tasks, len(folder.events), parameters, "filtering graphs")


def _tasks(folder: GraphFolder, scorer: EdgeScorer, cut: float) -> Iterator[GraphToMake]:
    for event in folder.events:
        record = folder.record(event)
        # The origin of an event stays what it was, so that runs know the events they trained on.
        source = record.get("made_from", {}).get("source", record["digests"]["graph"])
        yield _task(folder, event, source, lambda graph: scorer(graph) >= cut)


def _task(
    folder: GraphFolder, event: str, source: str, chosen: Callable[[EventGraph], Tensor]
) -> GraphToMake:
    read = cache(lambda: folder.read(event))
    keep = cache(lambda: chosen(read()))

    def make() -> tuple[EventGraph, dict[str, Any]]:
        kept = read().take_edges(keep())
        return kept, _record(folder.record(event), kept)

    def beside() -> dict[str, Section]:
        opened = folder.open(event)
        known = {name: thin for name, thin in SECTION_THINNERS.items() if name in opened.digests}
        return {name: thin(opened, keep()) for name, thin in known.items()}

    return GraphToMake(event, source, make, beside)


def _record(before: dict[str, Any], graph: EventGraph) -> dict[str, Any]:
    """Returns the counts and the quality of a thinned graph, as far as the record `before` tells
    how many edges there were to be found.
    """
    counts: dict[str, Any] = {"nodes": graph.n_nodes, "edges": graph.n_edges}
    counts |= {key: before[key] for key in (ORIGIN, *KEPT_IN_RECORDS) if key in before}
    if graph.y is None or before.get("true_edges") is None:
        return {**dict.fromkeys(QUALITY), **counts}
    target = Target(pt_min=TARGET_PT, hits_min=TARGET_HITS)
    first = first_of_each(graph.edge_index, graph.n_nodes)
    y, edges = graph.y[first], graph.edge_index[:, first]
    wanted = target_edges(y, edges, graph.particle_id, graph.particles, target)
    found, found_target = int(y.sum()), int(wanted.sum())
    return {
        **counts,
        **shares(found, found_target, len(y), before["true_edges"], before["target_edges"]),
    }
