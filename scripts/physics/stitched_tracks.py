"""Compares the tracks of events that ranks score in sectors with those that one rank makes.

    python scripts/physics/stitched_tracks.py PIPELINE EVENTS [--output FILE] [--publish]

`bigtrk reconstruct` makes tracks of EVENTS by the pipeline in each precision of the classifier, on
one rank and then on several of this host, with a limit of edges that makes it cut every event. The
last line is one JSON object: by precision and number of ranks, the fraction of hits whose track is
of other hits than on one rank; and, on one rank, than in float64. Tracks are compared as sets of
hits, whatever their numbers. Events should be of about the same size, since one limit must cut the
smallest, and leave two ranks enough for the largest.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigtrk.console import exit_on_bad_input, say
from bigtrk.errors import InputError
from bigtrk.pipeline.options import Precision
from bigtrk.studies.launch import torchrun_command, torchrun_environment
from bigtrk.tracks.files import open_tracks
from bigtrk.tracks.matching import Ids
from scripts.results import CHECKOUT, Results, add_options
from tests.oracle.changed_hits import changed_hits

RANKS = (2, 4, 8)


@dataclass(frozen=True)
class Made:
    """Tracks of events: the track of each hit [N] by event, and what `bigtrk reconstruct` told."""

    tracks: dict[int, Ids]
    told: dict[str, Any]

    @property
    def least_edges(self) -> int:
        """Returns the number of edges of the smallest graph after the filter."""
        return min(int(event["edges"]["filter"]) for event in self.told.values())


def changed(one: Made, other: Made) -> float:
    """Returns the fraction of all events' hits whose track is of other hits."""
    hits = sum(map(len, one.tracks.values()))
    differing = sum(changed_hits(one.tracks[event], other.tracks[event]) for event in one.tracks)
    return differing / max(hits, 1)


def make_tracks(
    pipeline: Path, events: Path, precision: Precision, ranks: int, max_edges: int | None
) -> Made:
    """Makes tracks on `ranks` ranks; raises InputError if it failed, or an event did."""
    say(f"{precision} on {ranks} rank(s)")
    limit = [] if max_edges is None else ["--max-edges", str(max_edges)]
    with tempfile.TemporaryDirectory() as folder:
        words = ["reconstruct", pipeline, events, folder, "--precision", precision, "--json"]
        done = subprocess.run(
            torchrun_command(ranks, CHECKOUT / "bigtrk/__main__.py", [*map(str, words), *limit]),
            env=torchrun_environment(ranks),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise InputError(f"{precision} on {ranks} rank(s) failed; what it said is above")
        source = open_tracks(Path(folder))
        tracks = {event: source.read(event).track_id for event in source.events}
    return Made(tracks, json.loads(done.stdout)["events"])


def compare(pipeline: Path, events: Path) -> tuple[dict[str, Any], Mapping[str, Made]]:
    """Returns the summary, and what one rank made in each precision."""
    alone = {one.value: make_tracks(pipeline, events, one, 1, None) for one in Precision}
    limit = max(1, min(made.least_edges for made in alone.values()) - 1)
    summary: dict[str, Any] = {}
    for precision in Precision:
        one = alone[precision.value]
        summary[precision.value] = {
            str(ranks): changed(one, make_tracks(pipeline, events, precision, ranks, limit))
            for ranks in RANKS
        }
    exact = alone[Precision.FLOAT64.value]
    summary["against_float64"] = {
        name: changed(exact, made) for name, made in alone.items() if made is not exact
    }
    return summary, alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pipeline", type=Path, help="folder of a pipeline")
    parser.add_argument("events", type=Path, help="folder or zip of events")
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("stitched_tracks", arguments)
    summary, alone = compare(arguments.pipeline, arguments.events)
    results.write(summary, alone={name: made.told for name, made in alone.items()})


if __name__ == "__main__":
    exit_on_bad_input("stitched_tracks.py", main)
