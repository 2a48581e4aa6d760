"""Trains a pipeline on the pixels' hits of bigtrk's simulation, and judges it on event 1000.

    python scripts/physics/pixels.py OUT [--event1000 FOLDER] [--quick | --publish]

`bigtrk simulate` makes 32 events of 10,000 particles to train on, of which 4 validate, and 4 others
to judge. The settings and the rules are those of the pixels in scoreboard.py, which trains on
events of ACTS. Work that is done already is kept. The last line is one JSON object, by HEPTv2's
rule.
"""

import argparse
from pathlib import Path

from bigtrk.console import Screen, exit_on_bad_input
from scripts.physics.physics_pipeline import simulate
from scripts.physics.scoreboard import (
    QUICK_SETTINGS,
    SETTINGS,
    found_by,
    table,
    trained,
    write_pixel_events,
)
from scripts.results import Results, add_options

TRAINING, JUDGED, PARTICLES = 32, 4, 10_000
QUICK = (5, 2, 500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--event1000", type=Path, help="folder of TrackML's event 1000")
    add_options(parser, quick="7 events of 500 particles, and trainings of seconds")
    arguments = parser.parse_args()
    results = Results("pixels", arguments)
    out, quick = arguments.out.resolve(), arguments.quick
    training, judge, particles = QUICK if quick else (TRAINING, JUDGED, PARTICLES)
    simulate({out / "training": training, out / "simulated": judge}, particles)
    hits = write_pixel_events(out / "training", out / "training_pixels")
    _, settings = QUICK_SETTINGS if quick else SETTINGS
    how = f"bigtrk reconstruct {trained(hits, out / 'pipeline', settings)}"
    sets = {"simulated": out / "simulated"}
    if arguments.event1000 is not None:
        sets["event1000"] = arguments.event1000
    found = {}
    for name, events in sets.items():
        pixels = write_pixel_events(events, out / f"{name}_pixels")
        found[f"{name}_pixels"] = {"bigtrk": found_by(how, pixels, out / f"{name}_tracks")}
    Screen(width=150).print(table(found))
    summary = {name: found[f"{name}_pixels"]["bigtrk"]["heptv2"] for name in sets}
    results.write(summary, found=found, training={"events": training, "particles": particles})


if __name__ == "__main__":
    exit_on_bad_input("pixels.py", main)
