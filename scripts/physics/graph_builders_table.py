"""Compares ways to make graphs at equal efficiency of target edges.

    python scripts/physics/graph_builders_table.py PIPELINE EVENTS TEST OUT [--event1000 FOLDER]

PIPELINE is a folder of `bigtrk pipeline train EVENTS PIPELINE`, TEST a folder of other events with
truth. Compared are learnt windows, the pipeline's embedding with a radius, its filter on that, and
a filter trained on graphs of windows: windows, radius and cuts are chosen on EVENTS, so that they
keep `--efficiency` of the target edges (from layer to layer, of particles above 1 GeV with 3 hits);
and a module map learnt on EVENTS, which has no such choice, with both its windows. All are judged
by the same truth. Work that is done already is kept in OUT. The last line is one JSON object, of
means over the events of TEST: by way, the share of target edges from layer to layer, of those in a
layer, where modules overlap, and of all true edges from layer to layer; edges, purity, and the
seconds from hits to the graph, without reading and writing.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from bigtrk.console import exit_on_bad_input, follow, say
from bigtrk.events.reader import find_events, read_event
from bigtrk.pipeline.training import DEFAULT, read_settings
from scripts.physics.graph_ways import Held, Way, measured, ways
from scripts.results import Results, add_options


def compare(ways: dict[str, Way], events: Path) -> dict[str, dict[str, float | None]]:
    """Measures the graphs of each event of a folder by each way; returns their means."""
    names = find_events(events)
    for make in ways.values():
        make(read_event(events, names[0]))  # what is made once is no event's time
    found: dict[str, list[dict[str, float | None]]] = {name: [] for name in ways}
    for name in follow(names, len(names), "compare graphs"):
        event = read_event(events, name)
        for way, make in ways.items():
            begin = perf_counter()
            graph = make(event)
            seconds = perf_counter() - begin
            found[way].append({**measured(graph, event), "seconds": seconds})
    return {way: _means(rows) for way, rows in found.items()}


def _means(rows: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for key in rows[0]:
        known = [value for row in rows if (value := row[key]) is not None]
        means[key] = fmean(known) if known else None
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("events", type=Path, help="those that the pipeline was trained on")
    parser.add_argument("test", type=Path, help="other simulated events with truth")
    parser.add_argument("out", type=Path)
    parser.add_argument("--event1000", type=Path, help="folder of a real event")
    parser.add_argument("--efficiency", type=float, default=0.98, help="of target edges (0.98)")
    parser.add_argument("--settings", type=Path, default=DEFAULT, help="of the pipeline")
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("graph_builders", arguments)
    settings = read_settings(arguments.settings)
    held = Held(arguments.events, settings.validation)
    made = ways(arguments.pipeline, held, arguments.out, settings, arguments.efficiency)
    folders = {"simulated": arguments.test, "event1000": arguments.event1000}
    found: dict[str, Any] = {}
    for name, folder in folders.items():
        if folder:
            say(name, style="bold")
            found[name] = compare(made, folder)
    results.write(found, efficiency=arguments.efficiency, compared=found)


if __name__ == "__main__":
    exit_on_bad_input("graph_builders_table.py", main)
