"""The command line of the partitioning program."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bigtrk.console import console, exit_on_bad_input, follow
from bigtrk.graphs.graph_folder import GraphFolder
from bigtrk.graphs.manifest import MANIFEST, write_manifest
from partition.one_event import Method, Settings
from partition.program import check, cores, cut_events, pending, share
from partition.report import table, write_report

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def main() -> None:
    """Entry point of `bigtrk-partition` and `python -m partition`."""
    exit_on_bad_input("bigtrk-partition", app)


@app.command()
def partition(
    graphs: Annotated[Path, typer.Argument(help="Folder of graphs, made by 'bigtrk build'.")],
    out: Annotated[Path, typer.Argument(help="Folder for the sectors.")],
    parts: Annotated[
        int | None, typer.Option(min=1, help="Sectors of every event; best a power of two.")
    ] = None,
    max_edges: Annotated[
        int | None,
        typer.Option(min=1, help="Cut each event in 1, 2, 4 ... sectors of at most so many edges."),
    ] = None,
    method: Annotated[
        Method, typer.Option(help="metis: fewest cut edges; wedges: by the azimuth phi.")
    ] = Method.METIS,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; default: one per core.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of METIS.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Cut event graphs into sectors that train together with halo exchange.

    Events that OUT holds already, cut with the same options from the same graph, are kept. Under
    srun each task cuts its share, and the last to finish writes the manifest and prints the
    report; the others print how many events are left.
    """
    if (parts is None) == (max_edges is None):
        raise typer.BadParameter("give either --parts or --max-edges")
    settings = Settings(parts, max_edges, method, seed)
    folder = GraphFolder(graphs)
    check(folder, out, settings)
    cut_share(folder, out, settings, workers or cores(), quiet=as_json)
    finish(folder, out, settings, as_json=as_json)


def cut_share(
    graphs: GraphFolder, out: Path, settings: Settings, workers: int, *, quiet: bool
) -> None:
    """Cut what this task has to, with a progress bar unless `quiet`."""
    mine = set(share(list(graphs.events), dict(os.environ)))
    to_do = [event for event in pending(graphs, out, settings) if event in mine]
    if not to_do:
        return
    # Until the last event is written, no manifest describes the folder.
    (out / MANIFEST).unlink(missing_ok=True)
    done = cut_events(graphs.path, out, to_do, settings, min(workers, len(to_do)))
    for _ in done if quiet else follow(done, len(to_do), "cutting"):
        pass


def finish(graphs: GraphFolder, out: Path, settings: Settings, *, as_json: bool) -> None:
    """Write manifest and report if no event is left, and show it; else say how many are left."""
    left = pending(graphs, out, settings)
    if left:
        said = f"this task is done; {len(left)} event(s) are left to the other tasks"
        print(json.dumps({"events_left": len(left)}) if as_json else said)
        return
    manifest = write_manifest(out, "sectors", asdict(settings), graphs.events)
    report = write_report(out, manifest)
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        console.print(table(report))
