"""Compares a pipeline with ACTS's Kalman filter, on events that neither was trained or tuned on.

    python scripts/physics/scoreboard.py OUT [--event1000 FOLDER] [--quick | --publish]

Fatras simulates 40 events to train on and 6 others to judge, of 8,800 particles. The pipeline and
`bigtrk baseline` find the tracks of the judged events and of TrackML's event 1000, and `bigtrk
score --rules all` judges them: strictly (particles above 1 GeV; above 0.5 GeV), and by HEPTv2's
rule. Tracks of simulated events are fitted, and the fits judged; `bigtrk evaluate` says at which
stage particles are lost. pixels.py does this for the pixels' hits. Work that is done already is
kept: a run that was stopped goes on. The last line is one JSON object.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table

from bigtrk.console import Screen, exit_on_bad_input
from bigtrk.disk.files import read_json, write_json
from bigtrk.records.pipeline import PIPELINE
from bigtrk.shipped import shipped
from scripts.physics.physics_pipeline import run, simulate
from scripts.results import CHECKOUT, RESULTS, Results, add_options

EVENTS = (40, 6, 8_800)  # to train on, to judge; particles of each
QUICK = (5, 2, 500)
SETTINGS = Path(__file__).with_suffix(".yaml")
QUICK_SETTINGS = shipped("configs/pipeline_quick.yaml")
PT_MIN, SOFT = 1.0, 0.5  # GeV


def once(file: Path, command: str) -> Any:
    """Runs a command that prints JSON, unless that was kept in a file; returns what it prints."""
    if not file.exists():
        printed = json.loads(run(f"{command} --json"))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, printed)
    return read_json(file)


def judged(tracks: Path, events: Path, pt_min: float = PT_MIN) -> dict[str, Any]:
    """Judges tracks strictly, and by HEPTv2's rule."""
    command = f"bigtrk score {tracks} {events} --pt-min {pt_min} --rules all"
    found = once(tracks / f"score_{pt_min:g}.json", command)
    rows = {(row["style"], row["mode"]): row for row in found["matching"]}
    strict, two_way = rows["ATLAS", "strict"], rows["two_way", "strict"]
    heptv2 = next(row for row in found["rules"] if row["rule"] == "HEPTv2")
    return {
        "efficiency": strict["efficiency"],
        "fake": strict["fake_rate"],
        "duplicate": strict["duplicate_rate"],
        "two_way": two_way["efficiency"],
        "two_way_fake": two_way["fake_rate"],
        "heptv2": {
            "efficiency": heptv2["found"] / heptv2["particles"],
            "fake": heptv2["fakes"] / max(heptv2["tracks"], 1),
        },
    }


def found_by(how: str, events: Path, out: Path) -> dict[str, Any]:
    """Judges the tracks of a command, HOW EVENTS OUT; seconds: None if all were found before."""
    made = once(out / "made.json", f"{how} {events} {out}")
    seconds = [sum(event["seconds"].values()) for event in made["events"].values()]
    soft = judged(out, events, SOFT)
    return judged(out, events) | {"soft": soft, "seconds": fmean(seconds) if seconds else None}


def trained(events: Path, out: Path, settings: Path) -> Path:
    """Trains a pipeline, unless it is there."""
    if not (out / PIPELINE).exists():
        run(f"bigtrk pipeline train {events} {out} {settings}")
    return out


def fitted(tracks: Path, events: Path) -> dict[str, Any]:
    """Fits tracks; returns what share converges, and the width of each parameter's pulls."""
    out = tracks.with_name(f"{tracks.name}_fits")
    once(out / "made.json", f"bigtrk fit {tracks} {events} {out}")
    fits = once(out / "score.json", f"bigtrk score {out} {events}")["fits"]
    widths = {one["parameter"]: one["pull_width"] for one in fits["parameters"]}
    return {"converged": fits["converged"] / max(fits["tracks"], 1), "pull_width": widths}


def table(found: dict[str, Any]) -> Table:
    """Lists what each found on each set of events, in percent."""
    columns = ("efficiency", "fake", "duplicate", "two_way", "two_way_fake")
    shown = Table("events", "by", *columns, "HEPTv2", "its fakes", "0.5 GeV", "s an event")
    for events, rows in found.items():
        for by, row in rows.items():
            values = [row[name] for name in columns]
            values += [row["heptv2"]["efficiency"], row["heptv2"]["fake"]]
            values += [row["soft"]["efficiency"]]
            shown.add_row(
                events,
                by,
                *("" if value is None else f"{value:.2%}" for value in values),
                "" if row["seconds"] is None else f"{row['seconds']:.1f}",
            )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--event1000", type=Path, help="folder of TrackML's event 1000")
    add_options(parser, quick="7 events of 500 particles, and trainings of seconds")
    arguments = parser.parse_args()
    results = Results("scoreboard", arguments)
    out, quick = arguments.out.resolve(), arguments.quick
    training, judge, particles = QUICK if quick else EVENTS
    simulate({out / "training": training, out / "fatras": judge}, particles, "--with acts")
    settings = QUICK_SETTINGS if quick else SETTINGS
    pipeline = trained(out / "training", out / "pipeline", settings)
    how = {"ckf": "bigtrk baseline", "bigtrk": f"bigtrk reconstruct {pipeline}"}
    sets = {"fatras": out / "fatras"}
    if arguments.event1000 is not None:
        sets["event1000"] = arguments.event1000
    found: dict[str, Any] = {}
    losses: dict[str, Any] = {}
    for name, events in sets.items():
        tracks = out / f"{name}_tracks"
        found[name] = {by: found_by(command, events, tracks / by) for by, command in how.items()}
        evaluate = f"bigtrk evaluate {pipeline} {events}"
        losses[name] = once(tracks / "losses.json", evaluate)["losses"]
    fits = {by: fitted(out / "fatras_tracks" / by, out / "fatras") for by in ("ckf", "bigtrk")}
    windows, simulated, fatras = (
        read_json(CHECKOUT / RESULTS / f"{name}.json")["summary"]
        for name in ("odd_windows", "pixels", "pixels_fatras")
    )
    Screen(width=150).print(table(found))
    results.write(
        {
            "fatras": found["fatras"],
            "event1000": found.get("event1000"),
            # bigtrk's are measured by pixels.py. HEPTv2's rule counts no other hits of the filter.
            "pixels": {
                name: {"ckf": found[name]["ckf"]["heptv2"], "bigtrk": of.get(name)}
                for name, of in {"fatras": fatras, "event1000": simulated}.items()
                if name in found
            },
            "odd_windows": windows["held_back"],
            "fit": fits["ckf"],  # of tracks that are pure
        },
        found=found,
        losses=losses,
        fits=fits,
        training={"events": training, "particles": particles},
    )


if __name__ == "__main__":
    exit_on_bad_input("scoreboard.py", main)
