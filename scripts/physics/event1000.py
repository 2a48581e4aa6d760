"""Trains pipelines on bigtrk's simulation, and judges them on event 1000 of the TrackML challenge.

    python scripts/physics/event1000.py OUT [--event1000 FOLDER] [--quick | --publish]

`bigtrk simulate` makes 32 events of 10,000 particles to train on, of which 4 validate, and 4 others
to judge. One pipeline is trained on all hits, another on those of the pixels, with the settings of
scoreboard.py, which trains on ACTS's simulation, and judges by the same rules. Work that is done
already is kept. The last line is one JSON object.
"""

import argparse
from pathlib import Path
from typing import Any

from bigtrk.console import Screen, exit_on_bad_input
from scripts.physics.physics_pipeline import run
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
PIXELS = "_pixels"  # ends the names of what has their hits alone


def hits_of(events: Path, part: Path) -> Path:
    """Returns a folder of events with all hits, or with the pixels' if `part` is named so."""
    return write_pixel_events(events, part) if part.name.endswith(PIXELS) else events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--event1000", type=Path, help="folder of TrackML's event 1000")
    add_options(parser, quick="7 events of 500 particles, and trainings of seconds")
    arguments = parser.parse_args()
    results = Results("event1000", arguments)
    out, quick = arguments.out.resolve(), arguments.quick
    training, judge, particles = QUICK if quick else (TRAINING, JUDGED, PARTICLES)
    for name, first, events in (("training", 0, training), ("simulated", training, judge)):
        run(
            f"bigtrk simulate {out / name} --events {events} --first-event {first} "
            f"--particles {particles}"
        )
    sets = {"simulated": out / "simulated"}
    if arguments.event1000 is not None:
        sets["event1000"] = arguments.event1000
    found: dict[str, Any] = {}
    for part, settings in zip(("", PIXELS), QUICK_SETTINGS if quick else SETTINGS, strict=True):
        learnt = hits_of(out / "training", out / f"training{part}")
        how = f"bigtrk reconstruct {trained(learnt, out / f'pipeline{part}', settings)}"
        for name, events in sets.items():
            judged = hits_of(events, out / f"{name}{part}")
            found[f"{name}{part}"] = {"bigtrk": found_by(how, judged, out / f"{name}{part}_tracks")}
    Screen(width=150).print(table(found))
    strict = ("efficiency", "fake", "duplicate", "two_way", "seconds")
    summary = {
        name: {key: row["bigtrk"][key] for key in strict} | {"heptv2": row["bigtrk"]["heptv2"]}
        for name, row in found.items()
    }
    results.write(summary, found=found, training={"events": training, "particles": particles})


if __name__ == "__main__":
    exit_on_bad_input("event1000.py", main)
