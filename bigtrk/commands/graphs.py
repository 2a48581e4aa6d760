"""The commands of the `bigtrk` program that make events and their graphs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bigtrk.console import console, print_result
from bigtrk.errors import InputError
from bigtrk.formats.acorn.names import PtUnit
from bigtrk.graphs.builders.module_map.names import MapWindows
from bigtrk.user_code import Code, allow_code


class Source(StrEnum):
    """The origin of events."""

    TRACKML = "trackml"
    HEPTRKX = "heptrkx"
    PYG = "pyg"
    ACORN = "acorn"


def simulate(
    out: Annotated[Path, typer.Argument(help="folder for the TrackML files")],
    events: Annotated[int, typer.Option(min=1, help="number of events")] = 8,
    particles: Annotated[int, typer.Option(min=1, help="particles per event")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="of the simulation")] = 0,
    first_event: Annotated[
        int, typer.Option(min=0, help="number of the first event; runs tell events by their names")
    ] = 0,
    detectors: Annotated[
        Path | None, typer.Option(help="a detectors.csv instead of the built-in geometry")
    ] = None,
    no_truth: Annotated[
        bool, typer.Option("--no-truth", help="what a detector measures, and not who made it")
    ] = False,
) -> None:
    """Simulate events and write them as TrackML files; what is there already is kept."""
    from bigtrk.events.simulation.production import simulate_folder

    numbers = range(first_event, first_event + events)
    simulate_folder(out, numbers, particles, seed, detectors, with_truth=not no_truth)


From = Annotated[
    Source,
    typer.Option("--from", help="TrackML files, HEPTrkX npz graphs, PyG's Data, acorn's graphs"),
]
PtMin = Annotated[
    float,
    typer.Option(
        min=0, help="GeV; with --learn-windows or --learn-module-map: softer, larger graphs"
    ),
]
LearnModuleMap = Annotated[
    bool, typer.Option("--learn-module-map", help="learn a module map from these events' truth")
]
Radius = Annotated[float | None, typer.Option(min=0, max=1e6, help="with --embedding: how near")]
Efficiency = Annotated[
    float | None,
    typer.Option(help="with --embedding: as near as keeps so many target edges; 0.99"),
]
Unit = Annotated[
    PtUnit | None,
    typer.Option(help="with --from acorn: of pT, where files do not say which reader made them"),
]
Columns = Annotated[
    str | None, typer.Option(help="with --from pyg: names of these columns, such as r,phi,z")
]


def build(
    events: Annotated[Path, typer.Argument(help="folder or zip of events")],
    out: Annotated[Path, typer.Argument(help="folder for the graphs")],
    source: From = Source.TRACKML,
    windows: Annotated[
        Path | None, typer.Option(help="windows file; built-in ones without it")
    ] = None,
    learn_windows: Annotated[
        bool, typer.Option("--learn-windows", help="learn windows from these events' truth")
    ] = False,
    pt_min: PtMin = 1.0,
    module_map: Annotated[
        Path | None, typer.Option(help="module map: join hits in triplets that pass it")
    ] = None,
    learn_module_map: LearnModuleMap = False,
    module_map_windows: Annotated[
        MapWindows, typer.Option(help="around all that the map has seen, or mean and 3 sigma")
    ] = MapWindows.MINMAX,
    embedding: Annotated[
        Path | None,
        typer.Option(help="run of an embedding: join hits that are near each other in it"),
    ] = None,
    radius: Radius = None,
    efficiency: Efficiency = None,
    true_edges: Annotated[
        bool, typer.Option("--true-edges", help="true edges alone, to train an embedding on")
    ] = False,
    node_features: Columns = None,
    edge_features: Columns = None,
    pt_unit: Unit = None,
    code: Code = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Build a graph of each event; what is already built is kept."""
    from bigtrk.graphs.builders.build_folder import build_folder, build_with, show_folder
    from bigtrk.graphs.builders.builder import TrueEdgeBuilder
    from bigtrk.graphs.builders.module_map.build_folder import build_by_module_map
    from bigtrk.pipeline.build import build_radius_graphs

    allow_code(code or ())
    imported, by_map = source is not Source.TRACKML, module_map is not None or learn_module_map
    by_windows, near = windows is not None or learn_windows, embedding is not None
    _check_one([by_windows, module_map is not None, learn_module_map, near, true_edges, imported])
    if not near and (radius is not None or efficiency is not None):
        raise InputError("--radius and --efficiency are of --embedding; give its run, too")
    if not by_map and module_map_windows is not MapWindows.MINMAX:
        raise InputError("--module-map-windows is of --module-map; give its file, too, or learn it")
    if source is not Source.PYG and (node_features or edge_features):
        raise InputError("--node-features and --edge-features are of --from pyg; give it, too")
    if source is not Source.ACORN and pt_unit:
        raise InputError("--pt-unit is of --from acorn; give it, too")
    if imported:
        manifest = _import_graphs(source, events, out, node_features, edge_features, pt_unit)
    elif embedding is not None:
        manifest = build_radius_graphs(events, out, embedding, radius, efficiency)
    elif by_map:
        manifest = build_by_module_map(events, out, module_map, module_map_windows, pt_min)
    elif true_edges:
        manifest = build_with(events, out, TrueEdgeBuilder())
    else:
        manifest = build_folder(events, out, windows, learn_windows, pt_min)
    print_result(manifest, as_json, lambda: show_folder(manifest, console))


def _check_one(ways: list[bool]) -> None:
    """Refuses more than one way to make the edges of graphs.

    Raises:
        InputError: several are asked for.
    """
    if sum(ways) > 1:
        raise InputError(
            "windows, --module-map, --learn-module-map, --embedding, --true-edges and --from "
            "heptrkx, pyg or acorn (whose graphs have edges already) exclude each other; give one"
        )


def _import_graphs(
    source: Source,
    graphs: Path,
    out: Path,
    node_features: str | None,
    edge_features: str | None,
    pt_unit: PtUnit | None,
) -> dict[str, Any]:
    """Imports graphs that have edges already; returns the manifest of `out`."""
    from bigtrk.formats.acorn.import_graphs import import_acorn_folder
    from bigtrk.formats.heptrkx import import_heptrkx_folder
    from bigtrk.formats.pyg import import_pyg_folder

    if source is Source.HEPTRKX:
        return import_heptrkx_folder(graphs, out)
    if source is Source.ACORN:
        return import_acorn_folder(graphs, out, pt_unit)
    return import_pyg_folder(graphs, out, _names(node_features), _names(edge_features))


def _names(text: str | None) -> list[str]:
    """Splits names at commas; none without `text`."""
    return [name.strip() for name in text.split(",")] if text else []
