"""The work of `bigtrk build` with a module map: learnt or read, applied, and kept."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bigtrk.console import follow, say
from bigtrk.events.event import Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.graphs.builders.build_folder import build_with
from bigtrk.graphs.builders.module_map.builder import ModuleMapBuilder
from bigtrk.graphs.builders.module_map.learning import learn_module_map
from bigtrk.graphs.builders.module_map.map_file import read_module_map, write_module_map
from bigtrk.graphs.builders.module_map.module_map import ModuleMap
from bigtrk.graphs.builders.module_map.names import MapWindows

MODULE_MAP = "module_map.safetensors"  # beside the graphs that were built with it


def build_by_module_map(
    events: Path,
    out: Path,
    file: Path | None,
    windows: MapWindows,
    pt_min: float,
    names: list[str] | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """Builds a graph of each event of `events` in folder `out` by a module map; returns the
    manifest.

    names, prefix: as of `build_with`. The map is that of `file`, else it is
    learnt from the truth of all these events (particles above `pt_min` GeV); it is written to
    `out`/module_map.safetensors.

    Raises:
        InputError: bad input; graphs built before stay.
    """
    names = find_events(events) if names is None else names
    module_map = read_module_map(file) if file else _learnt(events, names, pt_min)
    manifest = build_with(events, out, ModuleMapBuilder(module_map, windows), names, prefix)
    write_module_map(out / MODULE_MAP, module_map)
    return manifest


def _learnt(events: Path, names: list[str], pt_min: float) -> ModuleMap:
    made = f"learned from {len(names)} events, {names[0]} to {names[-1]}, pT above {pt_min} GeV"
    module_map = learn_module_map(_read(events, names), made, pt_min)
    say(
        f"the module map has {len(module_map.triplets):,} triplets of {len(module_map.modules):,} "
        f"modules; it knows all that is true in these events, so judge it on others: build them "
        f"with --module-map"
    )
    return module_map


def _read(events: Path, names: list[str]) -> Iterator[Event]:
    for name in follow(names, len(names), "learning a module map"):
        yield read_event(events, name)
