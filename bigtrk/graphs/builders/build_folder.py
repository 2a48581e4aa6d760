"""Builds every event of a folder as a graph, by windows or a module map, for `bigtrk build`."""

from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bigtrk.console import follow, say
from bigtrk.errors import InputError, number_of
from bigtrk.events.reader import find_events, format_of, read_event
from bigtrk.graphs.builders.builder import (
    TARGET_PT,
    GraphBuilder,
    WindowBuilder,
    build_with_record,
)
from bigtrk.graphs.builders.module_map import read_module_map, write_module_map
from bigtrk.graphs.builders.module_map_builder import ModuleMapBuilder, learn_module_map
from bigtrk.graphs.builders.window_learning import TARGET_HITS, learn_windows
from bigtrk.graphs.builders.windows import Windows, find_windows, write_windows
from bigtrk.graphs.storage.event_folder import MANIFEST, WINDOWS
from bigtrk.graphs.storage.graph_folder import GraphToMake, event_digest, fill_folder

# More events narrow the margins little, and all are held in memory at once.
EVENTS_TO_LEARN_FROM = 20


def build_folder(
    events: Path,
    out: Path,
    windows: str | Path | None = None,
    learn: bool = False,
    pt_min: float = 1.0,
    names: list[str] | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """Builds a graph in `out` of each event in `events`, by windows; returns the manifest.

    names, prefix: as in `build_with`. windows: a windows file, or a detector with shipped windows
    (`trackml`, `odd`); by default those of the first event's detector. With `learn` they are learnt
    from the truth of the first events instead (particles above `pt_min` GeV). The windows used are
    written to `out`/windows.yaml.
    """
    if windows and learn:
        raise InputError("--windows and --learn-windows exclude each other; give only one")
    names = find_events(events) if names is None else names
    if learn:
        used = names[:EVENTS_TO_LEARN_FROM]
        made = f"learned from {len(used)} events, {used[0]} to {used[-1]}, pT above {pt_min} GeV"
        chosen = learn_windows([read_event(events, name) for name in used], made, pt_min=pt_min)
    else:
        chosen = windows_of(events, names, windows)
    manifest = build_with(events, out, WindowBuilder(chosen), names, prefix)
    write_windows(out / WINDOWS, chosen)
    return manifest


def build_with(
    events: Path,
    out: Path,
    builder: GraphBuilder,
    names: list[str] | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """Builds a graph in `out`, by `builder`, of each event in `events`, a folder or zip archive;
    returns the manifest.

    names: the events to build; all by default. prefix: comes before events' names in the names of
    graphs. Graphs already in `out` that were made from the same event by the same builder are kept.
    A graph of the same name, but of another event, is refused.
    """
    names = find_events(events) if names is None else names
    # Graphs of earlier versions, without the modules of hits, are made again.
    parameters = {"from": format_of(events), "modules": True, **builder.parameters}

    def task(name: str) -> GraphToMake:
        event = read_event(events, name)
        return GraphToMake(name, event_digest(event), partial(build_with_record, event, builder))

    tasks = map(task, names)
    return fill_folder(out, tasks, len(names), parameters, "building graphs", prefix=prefix)


def windows_of(
    events: Path, names: list[str] | None = None, given: str | Path | None = None
) -> Windows:
    """Returns the windows (`find_windows`) for the first event of `names` or, if None, of all."""
    return find_windows(given, read_event(events, (names or find_events(events))[0]))


LONGEST_TABLE = 20  # events; a screen holds no more, and manifest.json has them all
WANTED = 0.97  # target efficiency; small events scatter by 1 % around the 98.5 % aimed at
SHOWN = {
    "edge_efficiency": "edge\neff.",
    "target_efficiency": "target\neff.",
    "purity": "total\npurity",
    "target_purity": "target\npurity",
}
RATIOS = (
    "eff.: share of the true edges that the graph holds; total purity: share of its edges that are "
    f"true; target: true edges of particles above {TARGET_PT:g} GeV with {TARGET_HITS} hits or more"
)


def show_folder(manifest: dict[str, Any], console: Console) -> None:
    """Prints a table of sizes and known quality: of each of the first graphs, then of all."""
    records = manifest["events"]
    known = [key for key in SHOWN if any(one.get(key) is not None for one in records.values())]
    hidden = len(records) - LONGEST_TABLE
    more = f"and {hidden} more in {MANIFEST}; " if hidden > 0 else ""
    caption = f"{more}all: sums, and means over events. " if len(records) > 1 else ""
    caption += RATIOS if known else ""
    # fits 80 columns
    table = Table(box=SIMPLE, padding=0, caption=caption or None, caption_justify="left")
    table.add_column("event", no_wrap=True)
    for heading in ("nodes", "edges", *(SHOWN[key] for key in known), "MB"):
        table.add_column(heading, no_wrap=True, justify="right")
    for name, record in list(records.items())[:LONGEST_TABLE]:
        table.add_row(name, *_cells(record, known))
    if len(records) > 1:
        table.add_section()
        total = {key: sum(r[key] for r in records.values()) for key in ("nodes", "edges", "bytes")}
        for key in known:
            total[key] = fmean(r[key] for r in records.values() if r.get(key) is not None)
        table.add_row("all", *_cells(total, known))
    console.print(table)
    shares = {name: record.get("target_efficiency") for name, record in records.items()}
    poor = [name for name, share in shares.items() if share is not None and share < WANTED]
    if poor:
        made = {*manifest["parameters"], manifest["parameters"].get("from")}
        advice = next((ADVICE[one] for one in ADVICE if one in made), ADVICE["windows"])
        say(
            f"less than {WANTED:.0%} of the target edges are in the graphs of "
            f"{number_of(len(poor), 'event')}, such as {poor[0]}: {advice}"
        )


# Why graphs with one of these parameters, or of these formats, may lack target edges.
ADVICE = {
    "filter": "the cut is too high, or edges were missing before; give a lower --score-cut or a "
    "higher --efficiency, or train the filter with graphs like these",
    "module_map": "the module map has seen too few events, or another detector or beam spot; learn "
    "one from more events like these",
    "embedding": "the radius is too small, or the embedding is for another detector or beam spot; "
    "give a larger --radius or --efficiency, or train one with these events",
    "acorn": "acorn's graph construction left them out, or its filter's cut is too high",
    "windows": "the windows are for another detector or beam spot, or learnt from too few events; "
    "learn windows from more events like these with --learn-windows",
}


def _cells(record: dict[str, Any], known: list[str]) -> list[str]:
    shares = ["-" if record.get(key) is None else f"{record[key]:.2%}" for key in known]
    return [f"{record['nodes']:,}", f"{record['edges']:,}", *shares, f"{record['bytes'] / 1e6:.1f}"]


MODULE_MAP = "module_map.safetensors"  # next to the graphs that were built with it


def build_by_module_map(
    events: Path,
    out: Path,
    file: Path | None,
    pt_min: float,
    names: list[str] | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """Builds graphs as `build_with` does, by the module map in `file` or, if None, one learnt from
    the truth of these events (particles above `pt_min` GeV). Writes the map to `out`/MODULE_MAP.
    """
    names = find_events(events) if names is None else names
    if file:
        module_map = read_module_map(file)
    else:
        made = f"learned from {len(names)} events, {names[0]} to {names[-1]}, pT above {pt_min} GeV"
        followed = follow(names, len(names), "learning a module map")
        module_map = learn_module_map((read_event(events, name) for name in followed), made, pt_min)
        say(
            f"the module map has {len(module_map.triplets):,} triplets of "
            f"{len(module_map.modules):,} modules; it was learnt from these events, so judge it on "
            f"other events, built with --module-map {out / MODULE_MAP}"
        )
    manifest = build_with(events, out, ModuleMapBuilder(module_map), names, prefix)
    write_module_map(out / MODULE_MAP, module_map)
    return manifest
