"""Compares simulated events with a real one: residuals of circle fits, occupancy, windows.

    python scripts/physics/simulator_residuals.py EVENT1000 [--events 3] [--output FILE] [--publish]

EVENT1000 is a folder with a real event and its truth. Beside it are events simulated as they are,
and without the detector's material. Per range of pT: circles fitted to the hits of particles that
cross the whole barrel, so that they are equally long wherever hits are missing; the residual of a
track is the root of the sum of its squares over hits - 3. Per volume: hits of an event. Of graphs
by the built-in windows: edges, purity, efficiency. The last line is one JSON object.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigtrk.console import exit_on_bad_input, follow
from bigtrk.events.event import NOISE, Event
from bigtrk.events.geometry import TRACKML_LAYERS, DetectorLayers
from bigtrk.events.reader import read_event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import hit_particles, particle_kinematics
from bigtrk.graphs.builders.builder import QUALITY, WindowBuilder, build_with_record
from bigtrk.graphs.builders.windows import builtin_windows
from scripts.results import Results, add_options

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

PARTICLES = 10_000
RANGES = ((0.5, 1.0), (1.0, 1.5), (1.5, 2.0), (2.0, 4.0))  # GeV
BARREL = (8, 13, 17)  # volumes
INNERMOST, OUTERMOST = 80.0, 800.0  # mm: where a track across the barrel begins and ends at least
LEAST_HITS = 7
WINDOWS = ("edges", *QUALITY[2:])


@dataclass(frozen=True)
class Tracks:
    """Particles with hits all across the barrel: pt (GeV) and residual (mm), each [T]."""

    pt: Float64
    residual: Float64


def circle_residuals(x: Float64, y: Float64, track: Int64) -> Float64:
    """Fits a circle to the points of each track and returns each point's distance from it, [N].

    x y [N] (mm), track [N]: 0 to T - 1, at least three points each, not on a line. The algebraic
    fit of Kasa (IEEE Transactions on Instrumentation and Measurement 25, 1976): the sagitta of
    these tracks is a hundred times their residuals and more, so its bias does not show.
    """

    def total(values: Float64) -> Float64:
        return np.bincount(track, values).astype(np.float64)

    count = np.bincount(track)
    x, y = x - (total(x) / count)[track], y - (total(y) / count)[track]
    columns, square = (x, y, np.ones_like(x)), x**2 + y**2
    products = [[total(a * b) for b in columns] for a in columns]
    right = [total(a * square) for a in columns]
    solved = np.linalg.solve(np.transpose(products, (2, 0, 1)), np.transpose(right)[..., None])
    a, b, c = solved[..., 0].T
    radius = np.sqrt(c + a**2 / 4 + b**2 / 4)
    distance: Float64 = np.hypot(x - a[track] / 2, y - b[track] / 2) - radius[track]
    return distance


def barrel_tracks(event: Event) -> Tracks:
    """Fits the particles that cross the whole barrel."""
    particle = hit_particles(event)
    chosen = (particle != NOISE) & np.isin(event.hits["volume_id"], BARREL)
    x, y = (event.hits[name][chosen].astype(np.float64) for name in "xy")
    ids, track, count = np.unique(particle[chosen], return_inverse=True, return_counts=True)
    first, last = np.full(len(ids), np.inf), np.zeros(len(ids))
    np.minimum.at(first, track, np.hypot(x, y))
    np.maximum.at(last, track, np.hypot(x, y))
    across = (first < INNERMOST) & (last > OUTERMOST) & (count >= LEAST_HITS)
    number, inside = np.cumsum(across) - 1, across[track]
    residual = circle_residuals(x[inside], y[inside], number[track[inside]])
    squares = np.bincount(number[track[inside]], residual**2)
    table = particle_kinematics(event)
    pt = table["pt"][np.searchsorted(table["particle_id"], ids[across])].astype(np.float64)
    return Tracks(pt, np.sqrt(squares / (count[across] - 3)))


def residuals(events: Sequence[Event]) -> dict[str, dict[str, float]]:
    """Returns number of tracks, median and 90 % quantile of their residuals (mm), per pT range."""
    tracks = [barrel_tracks(event) for event in events]
    pt = np.concatenate([one.pt for one in tracks])
    residual = np.concatenate([one.residual for one in tracks])
    found = {}
    for low, high in RANGES:
        there = residual[(pt > low) & (pt <= high)]
        median, most = np.quantile(there, (0.5, 0.9))
        found[f"{low:g} to {high:g} GeV"] = {
            "tracks": len(there),
            "median": float(median),
            "quantile_90": float(most),
        }
    return found


def occupancy(events: Sequence[Event]) -> dict[str, float]:
    """Returns the mean number of hits of an event, in all and per volume."""
    volumes = np.concatenate([event.hits["volume_id"] for event in events]).astype(np.int64)
    ids, counts = np.unique(volumes, return_counts=True)
    per_volume = {str(volume): float(count) for volume, count in zip(ids, counts, strict=True)}
    total = {"all": float(len(volumes)), **per_volume}
    return {name: count / len(events) for name, count in total.items()}


def window_quality(events: Sequence[Event]) -> dict[str, float]:
    """Returns edges, efficiencies and purities of graphs by the built-in windows, means."""
    records = [build_with_record(event, WindowBuilder(builtin_windows()))[1] for event in events]
    return {name: float(np.mean([record[name] for record in records])) for name in WINDOWS}


def measured(events: Sequence[Event]) -> dict[str, Any]:
    """Returns all that is to be compared."""
    return {
        "events": len(events),
        "residuals": residuals(events),
        "occupancy": occupancy(events),
        "windows": window_quality(events),
    }


def simulated(count: int, detector: DetectorLayers) -> list[Event]:
    """Simulates `count` full events."""
    numbers = follow(range(count), count, "simulate")
    return [simulate_event(PARTICLES, 0, number, detector) for number in numbers]


def summary(found: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    """Makes the last line: median residuals (mm), hits per event, target purity, by what events."""
    return {
        name: {
            **{key: row["median"] for key, row in one["residuals"].items()},
            "hits": one["occupancy"]["all"],
            "target_purity": one["windows"]["target_purity"],
        }
        for name, one in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("event1000", type=Path, help="folder of a real event")
    parser.add_argument("--events", type=int, default=3, help="to simulate (default: 3)")
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("simulator_residuals", arguments)
    empty = replace(TRACKML_LAYERS, material=np.zeros(len(TRACKML_LAYERS)))
    found = {
        "without_material": measured(simulated(arguments.events, empty)),
        "simulated": measured(simulated(arguments.events, TRACKML_LAYERS)),
        "event1000": measured([read_event(arguments.event1000)]),
    }
    results.write(summary(found), compared=found)


if __name__ == "__main__":
    exit_on_bad_input("simulator_residuals.py", main)
