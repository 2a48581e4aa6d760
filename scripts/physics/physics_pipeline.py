"""Trains pipelines on full simulated events, and judges their tracks of others and of a real one.

    python scripts/physics/physics_pipeline.py OUT --event1000 FOLDER [--output FILE] [--publish]

Each seed trains all stages by the shipped settings on 18 simulated events of 10,000 particles; two
more of which choose radius, cuts and the quality of tracks. Tracks are made of four others and of
the real event, by `bigtrk reconstruct`, and judged by `bigtrk score`. Work that is done already is
kept. The last line is one JSON object, of means over the seeds: ATLAS matching in strict mode and
two-way matching, for particles above 1 GeV; the target edges and the number of edges after the
filter; the seconds from hits to tracks of an event; the gain of the merge tree over components at
equal fakes on the same scores (builder_scan.py); and the tracks of the pixel volumes alone
(pixel_setting.py).
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
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.pipeline.stages import EMBEDDING, FILTER
from bigtrk.pipeline.train import DEFAULT
from bigtrk.records.pipeline import PIPELINE
from scripts.physics.builder_scan import gain, merge_tree_of, score_events
from scripts.physics.pixel_setting import judge_pixels, write_pixel_events
from scripts.results import Results, add_options

PARTICLES, EVENTS, TEST_EVENTS = 10_000, 20, 4
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


def trained(out: Path, seed: int) -> Path:
    """Trains the pipeline of a seed, unless it is there."""
    folder, file = out / f"pipeline{seed}", out / f"pipeline{seed}.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(DEFAULT.read_text()), "seed": seed}))
    if not (folder / PIPELINE).exists():
        run(f"bigtrk pipeline train {out}/events {folder} {file}")
    return folder


def judged(pipeline: Path, events: Path, tracks: Path) -> dict[str, Any]:
    """Makes tracks of `events`, judges them, and returns what there is to report."""
    made = json.loads(run(f"bigtrk reconstruct {pipeline} {events} {tracks} --json"))
    scored = json.loads(run(f"bigtrk score {tracks} {events} --json"))
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
    run(f"bigtrk filter {pipeline / FILTER} {near} {thin} --cut {record['cut']}")
    folder = GraphFolder(thin)
    records = [folder.record(event) for event in folder.events]
    return {
        "edge_efficiency": fmean(one["target_efficiency"] for one in records),
        "edges": fmean(one["edges"] for one in records),
    }


def pixels(pipeline: Path, events: Path, name: str) -> dict[str, float | None]:
    """Makes tracks of the pixel volumes of `events` alone, and judges them; name: of folders."""
    hits, tracks = (pipeline.parent / f"{name}_{what}" for what in ("pixels", pipeline.name))
    write_pixel_events(events, hits)
    run(f"bigtrk reconstruct {pipeline} {hits} {tracks}")
    return judge_pixels(tracks, hits)


def of_seed(out: Path, seed: int, real: Path | None) -> dict[str, Any]:
    """Trains and judges one seed."""
    pipeline, test = trained(out, seed), out / "test_events"
    simulated = judged(pipeline, test, out / f"tracks{seed}")
    compared = gain(score_events(pipeline, test), merge_tree_of(pipeline))
    found = {
        "simulated": simulated,
        **graphs_of(pipeline, test),
        "seconds_per_event": simulated["seconds_per_event"],
        "builder_gain": compared.points,
        "builders_at_equal_fakes": asdict(compared),
        "pixel": pixels(pipeline, test, "test"),
    }
    if real:
        found["event1000"] = judged(pipeline, real, out / f"real_tracks{seed}")
        found["pixel_event1000"] = pixels(pipeline, real, "real")
    tell(found)
    return found


def tell(found: dict[str, Any]) -> None:
    """Prints what a seed found that no command of bigtrk has printed."""
    say(f"merge tree against components at equal fakes: {_percent(found['builder_gain'])}")
    for name in ("pixel", "pixel_event1000"):
        if name in found:
            efficiency, fake = (_percent(found[name][key]) for key in ("efficiency", "fake"))
            say(f"{name}: efficiency {efficiency}, fakes {fake} (double majority)")


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.2%}"


SCORES = ("efficiency", "fake", "duplicate", "two_way")
GROUPS = {
    "simulated": SCORES,
    "event1000": SCORES,
    "pixel": ("efficiency", "fake"),
    "pixel_event1000": ("efficiency", "fake"),
}
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
            group: {key: combined([one[group][key] for one in seeds]) for key in keys}
            for group, keys in GROUPS.items()
            if group in seeds[0]
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
    run(f"bigtrk simulate {out}/events --events {EVENTS} --particles {PARTICLES}")
    run(
        f"bigtrk simulate {out}/test_events --events {TEST_EVENTS} --first-event {EVENTS} "
        f"--particles {PARTICLES}"
    )
    seeds = SEEDS[:1] if arguments.quick else SEEDS
    found = [of_seed(out, seed, arguments.event1000) for seed in seeds]
    results.write(summary(found), seeds=dict(zip(map(str, seeds), found, strict=True)))


if __name__ == "__main__":
    exit_on_bad_input("physics_pipeline.py", main)
