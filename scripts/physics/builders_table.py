"""Compares track builders on the same scores of a trained pipeline.

    python scripts/physics/builders_table.py PIPELINE EVENTS [--event1000 FOLDER] [--output FILE]

PIPELINE is a folder of `bigtrk pipeline train`, EVENTS a folder of events with truth that it was
not trained on. Each event goes through the pipeline once, up to the scores of its edges; of these
each builder makes tracks at each of its cuts. Two of them are shown: the best one, by efficiency x
(1 - fakes), and that of the largest efficiency with no more fakes than the merge tree has at the
threshold of the pipeline. Both are chosen on the events that are shown, which favours the builders
with a cut: the merge tree's threshold is the pipeline's. `--publish` writes docs/results. The last
line is one JSON object: how much more the merge tree finds than components at equal fakes, and the
efficiency of each builder there.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp
from pathlib import Path
from time import perf_counter
from typing import Any

from bigtrk.console import exit_on_bad_input, follow, say
from bigtrk.events.event import Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.pipeline.stages import MERGE_TREE, classified, load_pipeline
from bigtrk.tracks.builders.builder import ScoredGraph, TrackBuilder
from bigtrk.tracks.builders.merge_tree import MergeTree, read_merge_tree
from bigtrk.tracks.builders.registry import BUILDERS
from bigtrk.tracks.evaluation import judge_hits, summarise_judged
from bigtrk.tracks.matching import Criteria
from bigtrk.tracks.names import BuilderName
from scripts.results import Results, add_options

Make = Callable[[float], TrackBuilder]


MERGE = "merge_tree"
# Even steps of the logit: fakes fall by less than a third from one to the next.
CUTS = tuple(1 / (1 + exp(-step / 2)) for step in range(-8, 17))
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CRITERIA = Criteria()
STRICT, TWO_WAY = (
    next(each for each in CRITERIA.matchings() if (each.style, each.mode) == (style, "strict"))
    for style in ("ATLAS", "two_way")
)


@dataclass(frozen=True)
class Scored:
    """An event with truth, and its scored graph."""

    event: Event
    graph: ScoredGraph


@dataclass(frozen=True)
class Row:
    """A builder's tracks at one cut, of all events together: ATLAS matching in strict mode, the
    efficiency of two-way matching, the mean TrackML score and the mean seconds of an event.
    """

    cut: float
    efficiency: float | None
    fake: float | None
    duplicate: float | None
    two_way: float | None
    trackml_score: float | None
    seconds: float


@dataclass(frozen=True)
class Gain:
    """The merge tree as the pipeline has it, and the best tracks of components that hold no
    more fakes; None where no cut gives so few.
    """

    merge_tree: Row
    components: Row | None

    @property
    def points(self) -> float | None:
        """Returns by how much the merge tree's efficiency is the larger one, a fraction of 1."""
        mine = self.merge_tree.efficiency
        other = None if self.components is None else self.components.efficiency
        return None if mine is None or other is None else mine - other


def score_events(pipeline: Path, events: Path) -> list[Scored]:
    """Sends each event of a folder, with truth, through the pipeline once, up to its scores."""
    stages, names = load_pipeline(pipeline), find_events(events)
    read = (read_event(events, name) for name in follow(names, len(names), "score edges"))
    return [Scored(event, classified(stages.graph(event)[0], stages.classifier)) for event in read]


def judged(events: Sequence[Scored], builder: TrackBuilder, cut: float) -> Row:
    """Makes the tracks of events and judges them; cut: the builder's, for the row."""
    seconds, found = 0.0, []
    for one in events:
        begin = perf_counter()
        tracks = builder(one.graph, CRITERIA.min_hits)
        seconds += perf_counter() - begin
        found.append(judge_hits(one.event, tracks, (STRICT, TWO_WAY)))
    summary = summarise_judged(found, (STRICT, TWO_WAY))
    strict, two_way = summary.matching
    return Row(
        cut=cut,
        efficiency=strict.efficiency,
        fake=strict.fake_rate,
        duplicate=strict.duplicate_rate,
        two_way=two_way.efficiency,
        trackml_score=summary.trackml_score,
        seconds=seconds / len(events),
    )


def scan(
    events: Sequence[Scored], make: Callable[[float], TrackBuilder], cuts: Sequence[float]
) -> list[Row]:
    """Judges the tracks of the builder that `make` makes, at each of its cuts."""
    return [judged(events, make(cut), cut) for cut in cuts]


def best(rows: Sequence[Row]) -> Row:
    """Returns the row with the largest efficiency x (1 - fakes)."""
    return max(rows, key=lambda row: (row.efficiency or 0) * (1 - (row.fake or 0)))


def at_equal_fakes(rows: Sequence[Row], fake: float | None) -> Row | None:
    """Returns the row of the largest efficiency among those with no more fakes than `fake`; None
    where none has so few.
    """
    few = [row for row in rows if row.fake is not None and fake is not None and row.fake <= fake]
    return max(few, key=lambda row: row.efficiency or 0, default=None)


def gain(events: Sequence[Scored], tree: MergeTree) -> Gain:
    """Compares a merge tree at its threshold with components at equal fakes."""
    mine = judged(events, tree, tree.threshold)
    components = scan(events, BUILDERS[BuilderName.COMPONENTS], CUTS)
    return Gain(mine, at_equal_fakes(components, mine.fake))


def merge_tree_of(pipeline: Path) -> MergeTree:
    """Reads the merge tree of a pipeline."""
    return read_merge_tree(pipeline / MERGE_TREE)


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
