"""Trains pipelines on full simulated events, and judges their tracks of others and of a real one.

    python scripts/physics/physics_pipeline.py OUT --event1000 FOLDER [--publish]

Each seed trains all stages by the shipped settings on 18 simulated events of 10,000 particles; four
more of which choose radius, cuts and the quality of tracks. Tracks are made of four others and of
the real event, by `bigtrk reconstruct`, and judged by `bigtrk score`. Work that is done already is
kept. The last line is one JSON object, of means over the seeds: ATLAS matching in strict mode and
two-way matching, for particles above 1 GeV; the target edges and the number of edges after the
filter; the seconds from hits to tracks of an event; and the gain of the merge tree over components
at equal fakes on the same scores (builders_table.py). Two more judge "pixel",
tracks of the hits of the pixel volumes alone, and "pixel_part", the pixel hits of all tracks.
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

import numpy as np
import yaml

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.events.event import Columns, Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.trackml import write_event
from bigtrk.events.truth import hit_particles, particle_kinematics
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.pipeline.stages import EMBEDDING, FILTER
from bigtrk.pipeline.training import DEFAULT
from bigtrk.records.pipeline import PIPELINE
from bigtrk.tracks.files import HitTracks, event_number, open_tracks
from bigtrk.tracks.matching import Matching, Particles, TrackMetrics, match_tracks, pooled
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


VOLUMES = (7, 8, 9)
ETA_MAX = 4.0
MATCHING = Matching("two_way", "strict", pt_min=0.9, min_track_length=3, hits_min=3)


def write_pixel_events(events: Path, out: Path) -> Path:
    """Writes a folder's events, pixel hits alone, to `out`, unless there; returns that folder."""
    there = {path.name for path in out.glob("*-hits.csv.gz")}
    for name in find_events(events):
        if f"{name}-hits.csv.gz" not in there:
            write_event(pixel_event(read_event(events, name)), out)
    return out


def pixel_event(event: Event) -> Event:
    """Takes the hits of the pixel volumes, their cells and their truth."""
    hits = _rows(event.hits, np.isin(event.hits["volume_id"], VOLUMES))

    def of_hits(table: Columns | None) -> Columns | None:
        return table and _rows(table, np.isin(table["hit_id"], hits["hit_id"]))

    # The number of a particle's hits is another now; readers count them.
    particles = event.particles and {
        name: column for name, column in event.particles.items() if name != "nhits"
    }
    return Event(event.name, hits, of_hits(event.cells), particles, of_hits(event.truth))


def _rows(table: Columns, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Columns:
    return {name: column[chosen] for name, column in table.items()}


def judge_pixels(tracks: Path, events: Path) -> dict[str, float | None]:
    """Judges the pixel hits of tracks by the truth of `events`, whole ones or pixel events; all
    together: efficiency and fakes.
    """
    source = open_tracks(tracks)
    total = pooled(
        [
            metrics(read_event(events, name), source.read(event_number(name)))
            for name in find_events(events)
        ]
    )
    return {"efficiency": total.efficiency, "fake": total.fake_rate}


def metrics(event: Event, tracks: HitTracks) -> TrackMetrics:
    """Matches the pixel hits of one event's tracks, where these are three or more. A track of a
    particle that need not be found is no fake.
    """
    track_of_hit = tracks.of_hits(event.hits["hit_id"].astype(np.int64))
    track_id = track_of_hit[np.isin(event.hits["volume_id"], VOLUMES)]
    event = pixel_event(event)
    table = particle_kinematics(event)
    central = np.abs(table["eta"].astype(np.float64)) < ETA_MAX
    particles = Particles(
        table["particle_id"].astype(np.int64)[central],
        table["pt"].astype(np.float64)[central],
        table["nhits"].astype(np.int64)[central],
    )
    return match_tracks(track_id, hit_particles(event), particles, MATCHING).metrics


def pixels(pipeline: Path, hits: Path) -> dict[str, float | None]:
    """Makes tracks of pixel events, and judges them."""
    tracks = hits.with_name(f"{hits.name}_by_{pipeline.name}")
    run(f"bigtrk reconstruct {pipeline} {hits} {tracks}")
    return judge_pixels(tracks, hits)


def of_seed(out: Path, seed: int, folders: dict[str, Path]) -> dict[str, Any]:
    """Trains and judges one seed; folders: of events by the names of EVENT_SETS."""
    pipeline, test = trained(out, seed), folders["simulated"]
    compared = gain(score_events(pipeline, test), merge_tree_of(pipeline))
    found: dict[str, Any] = {
        **graphs_of(pipeline, test),
        "builder_gain": compared.points,
        "builders_at_equal_fakes": asdict(compared),
    }
    for name, events in folders.items():
        tracks = out / f"{name}_tracks{seed}"
        found[name] = judged(pipeline, events, tracks)
        found[f"pixel{EVENT_SETS[name]}"] = pixels(pipeline, out / f"{name}_pixels")
        found[f"pixel_part{EVENT_SETS[name]}"] = judge_pixels(tracks, events)
    found["seconds_per_event"] = found["simulated"]["seconds_per_event"]
    tell(found)
    return found


def tell(found: dict[str, Any]) -> None:
    """Prints what a seed found that no command of bigtrk has printed."""
    say(f"merge tree against components at equal fakes: {_percent(found['builder_gain'])}")
    for name in GROUPS:
        if name.startswith("pixel") and name in found:
            efficiency, fake = (_percent(found[name][key]) for key in ("efficiency", "fake"))
            say(f"{name}: efficiency {efficiency}, fakes {fake} (double majority)")


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.2%}"


SCORES = ("efficiency", "fake", "duplicate", "two_way")
EVENT_SETS = {"simulated": "", "event1000": "_event1000"}  # and how their other keys end
GROUPS = {
    **dict.fromkeys(EVENT_SETS, SCORES),
    **{
        f"{pixels}{end}": ("efficiency", "fake")
        for pixels in ("pixel", "pixel_part")
        for end in EVENT_SETS.values()
    },
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
    folders = {"simulated": out / "test_events"}
    if arguments.event1000:
        folders["event1000"] = arguments.event1000
    for name, events in folders.items():
        write_pixel_events(events, out / f"{name}_pixels")
    seeds = SEEDS[:1] if arguments.quick else SEEDS
    found = [of_seed(out, seed, folders) for seed in seeds]
    results.write(summary(found), seeds=dict(zip(map(str, seeds), found, strict=True)))


if __name__ == "__main__":
    exit_on_bad_input("physics_pipeline.py", main)
