"""Trains a pipeline on the pixels' hits of simulated events, and judges it by HEPTv2's rule.

    python scripts/physics/pixels.py OUT [--with-acts] [--event1000 FOLDER] [--quick | --publish]

The events are of `bigtrk simulate`: 32 of 10,000 particles to train on, of which 4 validate, and 4
others to judge. With --with-acts they are the 40 and 6 events of ACTS's simulation, of 8,800
particles, of scoreboard.py. OUT may be scoreboard.py's, whose events are then used. Work that is
done already is kept. The last line is one JSON object, by HEPTv2's rule.
"""

import argparse
from pathlib import Path

import numpy as np

from bigtrk.console import Screen, exit_on_bad_input
from bigtrk.events.event import Columns, Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.trackml import write_event
from scripts.physics import scoreboard
from scripts.physics.physics_pipeline import simulate
from scripts.physics.scoreboard import QUICK, QUICK_SETTINGS, found_by, table, trained
from scripts.results import Results, add_options

TRAINING, JUDGED, PARTICLES = 32, 4, 10_000
SETTINGS = Path(__file__).with_suffix(".yaml")
PIXELS = (7, 8, 9)  # volumes


def write_pixel_events(events: Path, out: Path) -> Path:
    """Writes a folder's events, pixel hits alone, to `out`, unless there; returns that folder."""
    there = {path.name for path in out.glob("*-hits.csv.gz")}
    for name in find_events(events):
        if f"{name}-hits.csv.gz" not in there:
            write_event(pixel_event(read_event(events, name)), out)
    return out


def pixel_event(event: Event) -> Event:
    """Takes the hits of the pixel volumes, their cells and their truth."""
    hits = _rows(event.hits, np.isin(event.hits["volume_id"], PIXELS))

    def of_hits(table: Columns | None) -> Columns | None:
        return table and _rows(table, np.isin(table["hit_id"], hits["hit_id"]))

    # The number of a particle's hits is another now; readers count them.
    particles = event.particles and {
        name: column for name, column in event.particles.items() if name != "nhits"
    }
    return Event(event.name, hits, of_hits(event.cells), particles, of_hits(event.truth))


def _rows(table: Columns, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Columns:
    return {name: column[chosen] for name, column in table.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--with-acts", action="store_true", help="train on events of ACTS")
    parser.add_argument("--event1000", type=Path, help="folder of TrackML's event 1000")
    add_options(parser, quick="7 events of 500 particles, and trainings of seconds")
    arguments = parser.parse_args()
    acts, out, quick = arguments.with_acts, arguments.out.resolve(), arguments.quick
    name, options = ("fatras", "--with acts") if acts else ("simulated", "")
    results = Results("pixels_fatras" if acts else "pixels", arguments)
    training, judge, particles = TRAINING, JUDGED, PARTICLES
    if quick or acts:
        training, judge, particles = QUICK if quick else scoreboard.EVENTS
    simulate({out / "training": training, out / name: judge}, particles, options)
    hits = write_pixel_events(out / "training", out / "training_pixels")
    pipeline = trained(hits, out / "pixel_pipeline", QUICK_SETTINGS if quick else SETTINGS)
    sets = {name: out / name}
    if arguments.event1000 is not None:
        sets["event1000"] = arguments.event1000
    found = {}
    for name, events in sets.items():
        pixels, tracks = (out / f"{name}_{what}" for what in ("pixels", "pixel_tracks"))
        how = f"bigtrk reconstruct {pipeline}"
        judged = found_by(how, write_pixel_events(events, pixels), tracks)
        found[f"{name}_pixels"] = {"bigtrk": judged}
    Screen(width=150).print(table(found))
    summary = {name: found[f"{name}_pixels"]["bigtrk"]["heptv2"] for name in sets}
    results.write(summary, found=found, training={"events": training, "particles": particles})


if __name__ == "__main__":
    exit_on_bad_input("pixels.py", main)
