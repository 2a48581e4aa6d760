"""Trains pipelines on bigtrk's simulation, on Fatras's and on both, and judges each on all.

    python scripts/physics/transfer.py OUT [--event1000 FOLDER] [--quick | --publish]

Each is trained with the shipped settings on 22 events, of which 4 validate; "both" has half of
each simulation's. They are judged strictly (particles above 1 GeV) on 4 further events of each
simulation, and on TrackML's event 1000. Work that is done already is kept: a run that was stopped
goes on. The last line is one JSON object.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from bigtrk.console import Screen, exit_on_bad_input
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.trackml import write_event
from bigtrk.shipped import shipped
from scripts.physics.physics_pipeline import simulate
from scripts.physics.scoreboard import found_by, trained
from scripts.results import Results, add_options

SIMULATIONS = {"simulated": (10_000, ""), "fatras": (8_800, "--with acts")}  # particles, options
QUICK = 300  # particles
TRAINING, JUDGED = 22, 4  # events
SHOWN = ("efficiency", "fake", "duplicate", "two_way", "two_way_fake")


def mix(folders: list[Path], out: Path) -> Path:
    """Writes events of the folders in turn, as many as one holds, to `out`; returns that folder.

    The last events validate, so that each simulation has its share of them, too.
    """
    for i in range(len(find_events(folders[0]))):
        source = folders[i % len(folders)]
        name = find_events(source)[i // len(folders)]
        if not (out / f"event{i:09d}-hits.csv.gz").exists():
            write_event(replace(read_event(source, name), name=f"event{i:09d}"), out)
    return out


def table(found: dict[str, dict[str, dict[str, float]]]) -> Table:
    """Lists efficiency and fakes, in percent: a row of each pipeline, a column of each events."""
    sets = [*next(iter(found.values()))]
    shown = Table("trained on", *sets)
    for name, rows in found.items():
        cells = [f"{rows[one]['efficiency']:.2%}, {rows[one]['fake']:.2%}" for one in sets]
        shown.add_row(name, *cells)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--event1000", type=Path, help="folder of TrackML's event 1000")
    add_options(parser, quick="small events, and trainings of seconds")
    arguments = parser.parse_args()
    results = Results("transfer", arguments)
    out, quick = arguments.out.resolve(), arguments.quick
    training, settings = (6, "pipeline_quick") if quick else (TRAINING, "pipeline")
    for name, (particles, options) in SIMULATIONS.items():
        folders = {out / name / "training": training, out / name / "judged": JUDGED}
        simulate(folders, QUICK if quick else particles, options)
    mix([out / name / "training" for name in SIMULATIONS], out / "both" / "training")
    sets = {name: out / name / "judged" for name in SIMULATIONS}
    if arguments.event1000 is not None:
        sets["event1000"] = arguments.event1000
    found = {}
    for name in (*SIMULATIONS, "both"):
        place = out / name
        file = shipped(f"configs/{settings}.yaml")
        how = f"bigtrk reconstruct {trained(place / 'training', place / 'pipeline', file)}"
        judged = {on: found_by(how, sets[on], place / f"tracks_{on}") for on in sets}
        found[name] = {on: {key: row[key] for key in SHOWN} for on, row in judged.items()}
    Screen(width=120).print(table(found))
    results.write(found, training={"events": training}, judged={"events": JUDGED})


if __name__ == "__main__":
    exit_on_bad_input("transfer.py", main)
