"""The command line of the partitioning program, and its report: partition.json and a table."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from bigtrk.console import complain, console, follow, run_commands
from bigtrk.disk.files import write_atomically, write_json
from bigtrk.errors import InputError, number_of
from bigtrk.graphs.storage.event_folder import MANIFEST, GraphFolder, file_of
from bigtrk.graphs.storage.graph_folder import finish_folder
from bigtrk.graphs.storage.sector_folder import SectorFolder
from bigtrk.launchers import find_place
from partition.cutting import (
    MOST_SEED,
    CutSettings,
    Failures,
    check,
    cut_events,
    of_wrong_size,
    overall,
    pending,
    useful_workers,
)
from partition.partitioners import Method

REPORT = "partition.json"
_LONGEST_TABLE = 20  # events; a screen holds no more, and partition.json has them all


def write_report(out: Path, manifest: dict[str, Any], failed: dict[str, str]) -> dict[str, Any]:
    """Writes partition.json from the manifest; returns its content. failed: event -> reason."""
    records = manifest["events"]
    content = {
        "parameters": manifest["parameters"],
        "software": manifest["software"],
        "overall": overall(records.values()),
        "events": {
            event: {
                "parts": record["parts"],
                "nodes": record["nodes"],
                "edges": record["edges"],
                **record["quality"],
            }
            for event, record in records.items()
        },
        "failed": failed,
    }
    write_json(out / REPORT, content)
    return content


def table(report: dict[str, Any]) -> Table:
    """Makes the report's table for a terminal."""
    shown = list(report["events"].items())[:_LONGEST_TABLE]
    hidden = len(report["events"]) - len(shown)
    more = f"and {hidden} more in {REPORT}; " if hidden else ""
    caption = (
        f"{more}cut: share of edges cut; halo: received rows per node; imbalance: most edges of a "
        "sector over the mean; neighbours: sectors that a sector exchanges rows with (mean)\n"
        "s: seconds to read, partition and cut, without writing"
    )
    result = Table(caption=caption, caption_justify="left", box=SIMPLE, padding=0)
    result.add_column("event", no_wrap=True)
    for name in ("parts", "edges", "cut", "halo", "imbalance", "neighbours", "s", "METIS s"):
        result.add_column(name, justify="right", no_wrap=True)
    for event, figures in shown:
        result.add_row(event, str(figures["parts"]), str(figures["edges"]), *_cells(figures))
    result.add_section()
    result.add_row("overall", "", "", *_cells(report["overall"]))
    return result


def _cells(figures: dict[str, float]) -> list[str]:
    return [
        f"{figures['cut_fraction']:.2%}",
        f"{figures['halo_fraction']:.2%}",
        f"{figures['edge_imbalance']:.3f}",
        f"{figures['neighbours']:.1f}",
        f"{figures['seconds']:.2f}",
        f"{figures['metis_seconds']:.2f}",
    ]


_MOST_NAMED = 5  # events in a message; the others are counted
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def main(program: str = "bigtrk-partition", arguments: Sequence[str] | None = None) -> None:
    """Runs the command line. program: name as typed; arguments: by default the process's."""
    run_commands(program, app, arguments)


@app.command(epilog="Example: `bigtrk partition graphs sectors --parts 2`")
def partition(
    graphs: Annotated[Path, typer.Argument(help="folder of graphs")],
    out: Annotated[Path, typer.Argument(help="folder for the sectors")],
    parts: Annotated[
        int | None, typer.Option(min=1, help="sectors of each event; best a power of two")
    ] = None,
    max_edges: Annotated[
        int | None,
        typer.Option(min=1, help="most edges of a sector; cuts into 1, 2, 4 ... sectors"),
    ] = None,
    method: Annotated[
        Method, typer.Option(help="metis: fewest cut edges; wedges: by the azimuth phi")
    ] = Method.METIS,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="worker processes; default: one per core, none for small jobs"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="seed of METIS")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print only JSON")] = False,
) -> None:
    """Cut graphs into sectors that train together.

    Events that OUT has already, cut with the same options from the same graph, are kept. An event
    with the name of another event in OUT is refused. Events that cannot be cut are named at the
    end, with exit status 2. Under srun and other launchers each rank cuts its share. The last one
    to finish prints the report, the others how many events are left.
    """
    if (parts is None) == (max_edges is None):
        raise typer.BadParameter("give either --parts or --max-edges")
    settings = CutSettings(parts, max_edges, method, seed)
    place = find_place()
    folder = GraphFolder(graphs)
    check(folder, out)
    unfit, mine = of_wrong_size(folder, settings), folder.events
    # RANK and WORLD_SIZE alone are also set in pods and batch scripts, where this is one process.
    if place.launcher in ("srun", "mpirun", "torchrun"):
        mine = mine[place.rank :: place.world_size]
    failed = {event: unfit[event] for event in mine if event in unfit}
    to_cut = [event for event in mine if event not in unfit]
    failed |= cut_share(folder, out, settings, to_cut, workers, quiet=as_json)
    finish(folder, out, settings, unfit | failed, as_json=as_json)
    if failed:
        named = ". ".join(list(failed.values())[:_MOST_NAMED])
        more = f". And {len(failed) - _MOST_NAMED} more" if len(failed) > _MOST_NAMED else ""
        n_events = len(folder.events)
        raise InputError(f"{len(failed)} of {n_events} events were not cut: {named}{more}")


def cut_share(
    graphs: GraphFolder,
    out: Path,
    settings: CutSettings,
    mine: list[str],
    workers: int | None,
    *,
    quiet: bool,
) -> Failures:
    """Cuts those events of `mine` that `out` lacks; returns the failures. quiet: without a bar."""
    left = set(pending(graphs, out, settings))
    to_do = [event for event in mine if event in left]
    if not to_do:
        return {}
    again = [event for event in to_do if file_of(out, event).exists()]
    if again:
        complain(
            f"{out}: cutting {number_of(len(again), 'event')} ({again[0]} first) again: their "
            f"sectors have other options, came from other graphs, or are damaged"
        )
    # Until the last event is written, no manifest describes the folder.
    (out / MANIFEST).unlink(missing_ok=True)
    for event in to_do:
        _failure_of(out, event).unlink(missing_ok=True)
    workers = min(workers or useful_workers(graphs, to_do), len(to_do))
    done = cut_events(graphs.path, out, to_do, settings, workers)
    failed: Failures = {}
    for failure in done if quiet else follow(done, len(to_do), "cutting"):
        failed |= failure
    if len(mine) < len(graphs.events):
        for event, why in failed.items():
            write_atomically(_failure_of(out, event), partial(Path.write_text, data=why))
    return failed


def _failure_of(out: Path, event: str) -> Path:
    """Returns the file that tells other tasks, until all have ended, why an event failed."""
    return out / f".{event}.failed"


def finish(
    graphs: GraphFolder, out: Path, settings: CutSettings, failed: Failures, *, as_json: bool
) -> None:
    """Writes manifest and report of all events that `out` holds cut with these settings, except
    `failed` ones and those that failed in other tasks. Prints the report if no event of `graphs` is
    left; otherwise prints how many are left.
    """
    left = [event for event in pending(graphs, out, settings) if event not in failed]
    for event in left:
        with suppress(FileNotFoundError):
            failed[event] = _failure_of(out, event).read_text()
    left = [event for event in left if event not in failed]
    if left:
        said = (
            f"this task is done; left to the other tasks: {number_of(len(left), 'event')}; if they "
            f"have ended, run the command again"
        )
        print(json.dumps({"events_left": len(left)}) if as_json else said)
        return
    for event in failed:
        _failure_of(out, event).unlink(missing_ok=True)
    done = [event for event in graphs.events if event not in failed]
    if not done:
        return
    manifest = finish_folder(
        out,
        SectorFolder,
        asdict(settings),
        done,
        lambda record: None if record["event"] in failed else record.get("cut"),
    )
    report = write_report(out, manifest, failed)
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        console.print(table(report))
