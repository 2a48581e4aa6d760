"""Compares track builders on the same scores of a trained pipeline.

    python scripts/physics/builders_table.py PIPELINE EVENTS [--event1000 FOLDER] [--output FILE]

PIPELINE is a folder of `bigtrk pipeline train`, EVENTS a folder of events with truth that it was
not trained on. Each event goes through the pipeline once, up to the scores of its edges; of these
each builder makes tracks at each of its cuts. Two of them are told: the best one, by efficiency x
(1 - fakes), and that of the largest efficiency with no more fakes than the merge tree has at the
threshold of the pipeline. Both are chosen on the events that are shown, which favours the builders
with a cut: the merge tree's threshold is the pipeline's. `--publish` writes docs/results. The last
line is one JSON object: how much more the merge tree finds than components at equal fakes, and the
efficiency of each builder there.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bigtrk.console import exit_on_bad_input, say
from bigtrk.tracks.builders.builder import TrackBuilder
from bigtrk.tracks.builders.merge_tree import MergeTree
from bigtrk.tracks.builders.registry import BUILDERS
from bigtrk.tracks.names import BuilderName
from scripts.physics.builder_scan import (
    CUTS,
    MERGE,
    THRESHOLDS,
    Gain,
    Row,
    Scored,
    at_equal_fakes,
    best,
    judged,
    merge_tree_of,
    scan,
    score_events,
)
from scripts.results import Results, add_options

Make = Callable[[float], TrackBuilder]


@dataclass(frozen=True)
class Compared:
    """A builder's tracks at the best of its cuts, at equal fakes (None: nowhere), and at all."""

    best: Row
    equal_fakes: Row | None
    rows: list[Row]


def builders(tree: MergeTree) -> dict[str, tuple[Make, Sequence[float]]]:
    """Lists by name how to make each builder of a cut, and its cuts."""
    by_cut: dict[str, tuple[Make, Sequence[float]]] = {
        name.value: (make, CUTS) for name, make in BUILDERS.items()
    }
    return {**by_cut, MERGE: (lambda threshold: replace(tree, threshold=threshold), THRESHOLDS)}


def compare(events: Sequence[Scored], tree: MergeTree) -> dict[str, Compared]:
    """Judges each builder at each of its cuts, and says how it did."""
    mine = judged(events, tree, tree.threshold)
    found = {}
    for name, (make, cuts) in builders(tree).items():
        rows = scan(events, make, cuts)
        equal = mine if name == MERGE else at_equal_fakes(rows, mine.fake)
        found[name] = Compared(best(rows), equal, rows)
        say(f"{name}: best {_told(found[name].best)}; at equal fakes {_told(equal)}")
    return found


def _told(row: Row | None) -> str:
    if row is None:
        return "none"
    efficiency, fake = (100 * (value or 0) for value in (row.efficiency, row.fake))
    return f"{efficiency:.1f} % with {fake:.1f} % fakes at {row.cut:.3g}"


def summary(found: dict[str, dict[str, Compared]]) -> dict[str, Any]:
    """Makes the last line: the gain, and each builder's efficiency at equal fakes, by events."""
    gains, efficiencies = {}, {}
    for events, builders in found.items():
        equal = {name: one.equal_fakes for name, one in builders.items()}
        mine = equal[MERGE]
        assert mine is not None
        key = "builder_gain" if events == "simulated" else f"builder_gain_{events}"
        gains[key] = Gain(mine, equal[BuilderName.COMPONENTS]).points
        efficiencies[events] = {name: row and row.efficiency for name, row in equal.items()}
    return {**gains, **efficiencies}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("events", type=Path, help="simulated events with truth")
    parser.add_argument("--event1000", type=Path, help="folder of a real event")
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("builders", arguments)
    tree = merge_tree_of(arguments.pipeline)
    folders = {"simulated": arguments.events}
    if arguments.event1000:
        folders["event1000"] = arguments.event1000
    found = {}
    for name, folder in folders.items():
        say(name, style="bold")
        found[name] = compare(score_events(arguments.pipeline, folder), tree)
    told = {
        events: {name: asdict(one) for name, one in builders.items()}
        for events, builders in found.items()
    }
    results.write(summary(found), threshold=tree.threshold, compared=told)


if __name__ == "__main__":
    exit_on_bad_input("builders_table.py", main)
