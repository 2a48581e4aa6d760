"""Commands of the `bigtrk` program that make events, graphs and sectors."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from bigtrk.commands.options import AsJson
from bigtrk.console import console, print_result
from bigtrk.errors import InputError
from bigtrk.events.event import EventFormat
from bigtrk.events.reader import READERS, find_events, format_of
from bigtrk.formats.registry import GRAPH_READERS, PtUnit, options_of
from bigtrk.user_code import Code, allow_code

# mypy cannot know the members of what a registry names.
_SOURCES = {name.upper(): name for name in (*READERS, *GRAPH_READERS)}
Source = StrEnum("Source", _SOURCES)  # type: ignore[misc]
_TRACKML = Source(EventFormat.TRACKML)
Columns = Annotated[
    str | None, typer.Option(help="names of the columns of imported graphs, such as r,phi,z")
]


def simulate(
    out: Annotated[Path, typer.Argument(help="folder for the events' files")],
    events: Annotated[int, typer.Option(min=1, help="number of events")] = 8,
    particles: Annotated[int, typer.Option(min=1, help="particles per event")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="seed of the simulation")] = 0,
    first_event: Annotated[int, typer.Option(min=0, max=10**17, help="first event's number")] = 0,
    detectors: Annotated[
        str, typer.Option(help="trackml, odd (the Open Data Detector), or a detectors.csv file")
    ] = "trackml",
    no_truth: Annotated[bool, typer.Option("--no-truth", help="write only hits")] = False,
    file_format: Annotated[
        EventFormat,
        typer.Option("--format", help="format of files: TrackML's CSV or ColliderML's Parquet"),
    ] = EventFormat.TRACKML,
    simulator: Annotated[
        Literal["own", "acts"],
        typer.Option("--with", help="acts: simulate by ACTS's Fatras (pip install 'bigtrk[acts]')"),
    ] = "own",
    hepmc3: Annotated[
        Path | None, typer.Option(help="with --with acts: HepMC3 file of collisions to simulate")
    ] = None,
    clusters: Annotated[
        bool, typer.Option("--clusters", help="with --with acts: hits from clusters of cells")
    ] = False,
) -> None:
    """Simulate events and write them as files.

    Files that are there already are kept.
    """
    numbers = range(first_event, first_event + events)
    if simulator == "acts":
        from bigtrk.formats.acts.simulation import FatrasOptions, simulate_with_acts

        if no_truth or detectors != "trackml" or file_format is not EventFormat.TRACKML:
            raise InputError(
                "--with acts always simulates TrackML's detector, with truth, in ACTS's format; "
                "leave out --no-truth, --detectors and --format"
            )
        options = FatrasOptions(particles, seed, "clusters" if clusters else "smearing", hepmc3)
        simulate_with_acts(out, numbers, options)
        return
    if hepmc3 or clusters:
        raise InputError("--hepmc3 and --clusters need --with acts; add it")
    from bigtrk.events.simulation.production import simulate_folder

    simulate_folder(out, numbers, particles, seed, detectors, not no_truth, file_format)


def build(
    events: Annotated[Path, typer.Argument(help="folder or zip of events")],
    out: Annotated[Path, typer.Argument(help="folder for the graphs")],
    source: Annotated[
        Source, typer.Option("--from", help="format of EVENTS; needed to import finished graphs")
    ] = _TRACKML,
    event_range: Annotated[
        str | None, typer.Option("--events", help="only events of these numbers, such as 0-99")
    ] = None,
    windows: Annotated[
        str | None, typer.Option(help="trackml, odd or a file; default: those of the detector")
    ] = None,
    learn_windows: Annotated[
        bool, typer.Option("--learn-windows", help="learn windows from these events' truth")
    ] = False,
    pt_min: Annotated[
        float,
        typer.Option(min=0, help="least pT to learn from, GeV; a lower one makes larger graphs"),
    ] = 1.0,
    module_map: Annotated[
        Path | None, typer.Option(help="file of a module map: join the hits that it allows")
    ] = None,
    learn_module_map: Annotated[
        bool, typer.Option("--learn-module-map", help="learn a module map from these events' truth")
    ] = False,
    embedding: Annotated[
        Path | None, typer.Option(help="run of an embedding: join hits that are close in it")
    ] = None,
    radius: Annotated[
        float | None, typer.Option(min=0, max=1e6, help="with --embedding: largest distance")
    ] = None,
    efficiency: Annotated[
        float | None, typer.Option(help="with --embedding: share of target edges to keep")
    ] = None,
    true_edges: Annotated[
        bool, typer.Option("--true-edges", help="make true edges only, to train an embedding")
    ] = False,
    node_features: Columns = None,
    edge_features: Columns = None,
    pt_unit: Annotated[
        PtUnit | None, typer.Option(help="unit of pT in imported graphs, if files do not name it")
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="put before the graphs' names, if OUT has others of these names")
    ] = "",
    phi_sections: Annotated[
        int | None,
        typer.Option(min=1, help="sections in phi into which HEPTrkX cut events; 1: none"),
    ] = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Build a graph of each event.

    Graphs that are built already are kept.
    """
    from bigtrk.graphs.builders.build_folder import (
        build_by_module_map,
        build_folder,
        build_with,
        show_folder,
    )
    from bigtrk.graphs.builders.builder import TrueEdgeBuilder
    from bigtrk.pipeline.graphs import build_radius_graphs

    allow_code(code or ())
    imported = source in GRAPH_READERS
    by_windows, near = windows is not None or learn_windows, embedding is not None
    if sum([by_windows, module_map is not None, learn_module_map, near, true_edges, imported]) > 1:
        raise InputError(
            "the options ask for more than one way to make graphs; keep only one of --windows, "
            "--learn-windows, --module-map, --learn-module-map, --embedding, --true-edges and "
            f"--from (with {' or '.join(GRAPH_READERS)})"
        )
    if not near and (radius is not None or efficiency is not None):
        raise InputError("--radius and --efficiency need --embedding RUN; add it")
    if imported and event_range is not None:
        raise InputError(f"--from {source} imports all graphs; leave out --events")
    columns = {"node_features": _names(node_features), "edge_features": _names(edge_features)}
    of_format = {**columns, "pt_unit": pt_unit, "phi_sections": phi_sections}
    options = options_of(GRAPH_READERS, source, "--from", of_format)
    names = None if imported else _chosen(events, source, event_range)
    if imported:
        manifest = GRAPH_READERS[source](events, out, prefix=prefix, **options)
    elif embedding is not None:
        manifest = build_radius_graphs(events, out, embedding, radius, efficiency, names, prefix)
    elif module_map is not None or learn_module_map:
        manifest = build_by_module_map(events, out, module_map, pt_min, names, prefix)
    elif true_edges:
        manifest = build_with(events, out, TrueEdgeBuilder(), names, prefix)
    else:
        manifest = build_folder(events, out, windows, learn_windows, pt_min, names, prefix)
    print_result(manifest, as_json, lambda: show_folder(manifest, console))


def _chosen(events: Path, source: Source, numbers: str | None) -> list[str] | None:
    """Returns the names of the events that `numbers` selects; None for all of them."""
    if source is not _TRACKML and format_of(events) != source:
        raise InputError(
            f"{events}: holds no events in the format of --from {source}; name the folder that "
            "holds them, or leave out --from to read any format of events"
        )
    if numbers is None:
        return None
    first, _, last = numbers.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise InputError(f"--events {numbers}: give first and last event number, such as 0-99")
    return find_events(events, range(int(first), int(last) + 1))


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


def filter_graphs(
    run: Annotated[Path, typer.Argument(help="run of an edge model")],
    graphs: Annotated[Path, typer.Argument(help="folder of graphs")],
    out: Annotated[Path, typer.Argument(help="folder for the thinned graphs")],
    efficiency: Annotated[
        float | None, typer.Option(help="share of target edges to keep; default: 0.995")
    ] = None,
    score_cut: Annotated[
        float | None, typer.Option(min=0, max=1, help="instead of --efficiency: least score")
    ] = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Thin graphs: drop the edges that a model calls false."""
    from bigtrk.graphs.builders.build_folder import show_folder
    from bigtrk.pipeline.graphs import filter_folder

    allow_code(code or ())
    manifest = filter_folder(run, graphs, out, score_cut, efficiency)
    print_result(manifest, as_json, lambda: show_folder(manifest, console))


def partition(context: typer.Context) -> None:
    """Cut graphs into sectors that train together."""
    from partition.cli import main as cut

    cut("bigtrk partition", context.args)
