"""Stages 2 and 3: builds radius graphs, and removes the edges that the filter scores as false."""

from pathlib import Path
from typing import Any

from bigtrk.errors import InputError
from bigtrk.formats.registry import KEPT_IN_RECORDS, SECTION_THINNERS
from bigtrk.graphs.builders.build_folder import build_with
from bigtrk.graphs.builders.builder import QUALITY, quality_of
from bigtrk.graphs.builders.radius import RadiusBuilder
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.event_folder import ORIGIN, GraphFolder
from bigtrk.graphs.storage.graph_folder import GraphToMake, MadeWithMore, fill_folder
from bigtrk.pipeline.models import EdgeScorer, cut_for, load_embedding, load_scorer, radius_for

RADIUS_EFFICIENCY = 0.99  # default share of target edges to keep


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

    run: of the embedding. radius: by default the one that keeps a share `efficiency` (0.99) of the
    target edges of the run's validation events. names, prefix: as in `build_with`. Raises
    InputError at bad input, or if an event has too many edges; graphs built before stay.
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


CUT_EFFICIENCY = 0.995  # default share of target edges to keep


def filter_folder(
    run: Path, graphs: Path, out: Path, cut: float | None, efficiency: float | None
) -> dict[str, Any]:
    """Writes the graphs in `graphs` to `out`, without the edges that score below `cut`; returns the
    manifest. Graphs in `out` made in the same way are kept. InputError at bad input.

    run: of the edge model. cut: by default the score that a share `efficiency` (0.995) of the
    target edges of the run's validation events reach.
    """
    if out.resolve() == graphs.resolve():
        raise InputError(f"{out}: holds the graphs to be filtered; name another folder as OUT")
    if cut is not None and efficiency is not None:
        raise InputError("give --score-cut or --efficiency, not both")
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
    tasks = (_task(folder, event, scorer, cut) for event in folder.events)
    return fill_folder(out, tasks, len(folder.events), parameters, "filtering graphs")


def _task(folder: GraphFolder, event: str, scorer: EdgeScorer, cut: float) -> GraphToMake:
    record = folder.record(event)
    # The event's origin is kept, so that runs recognise the events they trained on.
    source = record.get("made_from", {}).get("source", record["digests"]["graph"])

    def make() -> MadeWithMore:
        graph, opened = folder.read(event), folder.open(event)
        keep = scorer(graph) >= cut
        kept = graph.take_edges(keep)
        thinners = {name: thin for name, thin in SECTION_THINNERS.items() if name in opened.digests}
        beside = {name: thin(opened, keep) for name, thin in thinners.items()}
        return kept, _record(record, kept), beside

    return GraphToMake(event, source, make)


def _record(before: dict[str, Any], graph: EventGraph) -> dict[str, Any]:
    """Returns a filtered graph's counts, and its quality if its former record has true edges."""
    counts: dict[str, Any] = {"nodes": graph.n_nodes, "edges": graph.n_edges}
    counts |= {key: before[key] for key in (ORIGIN, *KEPT_IN_RECORDS) if key in before}
    if graph.y is None or before.get("true_edges") is None:
        return {**dict.fromkeys(QUALITY), **counts}
    return {**counts, **quality_of(graph, before["true_edges"], before["target_edges"])}
