"""Trains pipelines on full simulated events, and judges their tracks of others and of a real one.

    python scripts/physics/physics_pipeline.py OUT --event1000 FOLDER [--publish]

Each seed trains all stages by the shipped settings on 18 simulated events of 10,000 particles; four
more of which choose radius, cuts and the quality of tracks. Tracks are made of four others and of
the real event, by `bigtrk reconstruct`, and judged by `bigtrk score`. Work that is done already is
kept. The last line is one JSON object, of means over the seeds: ATLAS matching in strict mode and
two-way matching, for particles above 1 GeV; the target edges and the number of edges after the
filter; the seconds from hits to tracks of an event; and the gain of the merge tree over components
at equal fakes on the same scores (builders_table.py).
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.pipeline.stages import EMBEDDING, FILTER
from bigtrk.pipeline.training import DEFAULT
from bigtrk.records.pipeline import PIPELINE
from scripts.physics.builders_table import gain, merge_tree_of, score_events
from scripts.results import Results, add_options

PARTICLES, EVENTS, TEST_EVENTS = 10_000, 22, 4
SEEDS = (0, 1, 2)


def run(command: str) -> str:
    """Runs a command of bigtrk; returns what it prints."""
    console.rule(style="dim")
    say(f"$ {command}", style="bold")
    program, *arguments = shlex.split(command)
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *arguments],
        check=True,
        stdout=subprocess.PIPE if "--json" in arguments else None,
        text=True,
    )
    return done.stdout or ""


def simulate(folders: dict[Path, int], particles: int, options: str = "") -> None:
    """Simulates a number of events into each folder, numbered across all; keeps those there."""
    first = 0
    for folder, events in folders.items():
        run(
            f"bigtrk simulate {folder} {options} --events {events} --first-event {first} "
            f"--particles {particles}"
        )
        first += events


def trained(out: Path, seed: int) -> Path:
    """Trains the pipeline of a seed on `out`/events, unless it is there."""
    folder, file = out / f"pipeline{seed}", out / f"pipeline{seed}.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(DEFAULT.read_text()), "seed": seed}))
    if not (folder / PIPELINE).exists():
        run(f"bigtrk pipeline train {out}/events {folder} {file}")
    return folder


def judged(pipeline: Path, events: Path, tracks: Path) -> dict[str, Any]:
    """Makes tracks of `events`, judges them, and returns what there is to report."""
    made = json.loads(run(f"bigtrk reconstruct {pipeline} {events} {tracks} --json"))
    scored = json.loads(run(f"bigtrk score {tracks} {events} --json"))
    scored["tracks"], scored["data"] = tracks.name, events.name  # not where they were
    rows = {(row["style"], row["mode"]): row for row in scored["matching"]}
    strict, two_way = rows["ATLAS", "strict"], rows["two_way", "strict"]
    return {
        "efficiency": strict["efficiency"],
        "fake": strict["fake_rate"],
        "duplicate": strict["duplicate_rate"],
        "two_way": two_way["efficiency"],
        "seconds_per_event": fmean(sum(e["seconds"].values()) for e in made["events"].values()),
        "made": made,
        "scored": scored,
    }


def graphs_of(pipeline: Path, events: Path) -> dict[str, float]:
    """Builds the filtered graphs of `events` with their truth; returns what the filter leaves."""
    record = json.loads((pipeline / PIPELINE).read_text())
    near, thin = (pipeline / "graphs" / f"test_{stage}" for stage in ("radius", "filtered"))
    run(
        f"bigtrk build {events} {near} --embedding {pipeline / EMBEDDING} "
        f"--radius {record['radius']}"
    )
    run(f"bigtrk filter {pipeline / FILTER} {near} {thin} --score-cut {record['cut']}")
    folder = GraphFolder(thin)
    records = [folder.record(event) for event in folder.events]
    return {
        "edge_efficiency": fmean(one["target_efficiency"] for one in records),
        "edges": fmean(one["edges"] for one in records),
    }


def of_seed(out: Path, seed: int, folders: dict[str, Path]) -> dict[str, Any]:
    """Trains and judges one seed; folders: of events, by EVENT_SETS."""
    pipeline, test = trained(out, seed), folders["simulated"]
    compared = gain(score_events(pipeline, test), merge_tree_of(pipeline))
    found: dict[str, Any] = {
        **graphs_of(pipeline, test),
        "builder_gain": compared.points,
        "builders_at_equal_fakes": asdict(compared),
    }
    for name, events in folders.items():
        found[name] = judged(pipeline, events, out / f"{name}_tracks{seed}")
    found["seconds_per_event"] = found["simulated"]["seconds_per_event"]
    points = found["builder_gain"]
    gained = "unknown" if points is None else f"{points:.2%}"
    say(f"merge tree against components at equal fakes: {gained}")
    return found


SCORES = ("efficiency", "fake", "duplicate", "two_way")
EVENT_SETS = ("simulated", "event1000")
NUMBERS = ("edge_efficiency", "edges", "seconds_per_event", "builder_gain")


def summary(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Makes the last line: means over seeds, and their standard deviations; None where a seed has
    no such number.
    """

    def over(combine: Callable[[list[float]], float]) -> dict[str, Any]:
        def combined(values: list[float | None]) -> float | None:
            known = [value for value in values if value is not None]
            return combine(known) if len(known) == len(values) else None

        made: dict[str, Any] = {
            name: {key: combined([one[name][key] for one in seeds]) for key in SCORES}
            for name in EVENT_SETS
            if name in seeds[0]
        }
        return made | {key: combined([one[key] for one in seeds]) for key in NUMBERS}

    spread = over(stdev) if len(seeds) > 1 else {}
    return {**over(fmean), "deviation": spread}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--event1000", type=Path, help="folder of a real event")
    add_options(parser, quick="one seed")
    arguments = parser.parse_args()
    results = Results("pipeline", arguments)
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    simulate({out / "events": EVENTS, out / "test_events": TEST_EVENTS}, PARTICLES)
    folders = {"simulated": out / "test_events"}
    if arguments.event1000:
        folders["event1000"] = arguments.event1000
    seeds = SEEDS[:1] if arguments.quick else SEEDS
    found = [of_seed(out, seed, folders) for seed in seeds]
    results.write(summary(found), seeds=dict(zip(map(str, seeds), found, strict=True)))


if __name__ == "__main__":
    exit_on_bad_input("physics_pipeline.py", main)
