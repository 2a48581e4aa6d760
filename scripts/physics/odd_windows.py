"""Learns the windows of the Open Data Detector, and judges them on ColliderML's real events.

    python scripts/physics/odd_windows.py EVENTS [--learn FILE] [--before FILE] [--publish]

EVENTS is the folder of the seven events of ColliderML's production. `--learn` learns from the first
four and writes the windows; else the shipped ones are judged. An event without pile-up has one
vertex, so most is learnt from crowded events: two of `bigtrk simulate`, and six of collisions of
the four, turned around the beam, mirrored, put elsewhere along it and simulated anew. The four
count WEIGHT times. `--before` names windows to compare with, such as those of
`git show 6e22e09e:bigtrk/graphs/builders/windows_odd.yaml`; hits in one ring were not joined then.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from bigtrk.console import exit_on_bad_input
from bigtrk.events.event import Columns, Event
from bigtrk.events.geometry import ODD_BEAM_SIGMA_Z, ODD_LAYERS
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.simulation.simulate import event_of_particles, simulate_event
from bigtrk.events.truth import true_edges
from bigtrk.graphs.builders import windows
from bigtrk.graphs.builders.window_learning import is_target, learn_windows
from bigtrk.graphs.builders.windows import Windows, build_doublets, builtin_windows, read_windows
from scripts.results import Results, add_options

SIMULATED, CROWDED, PARTICLES = 2, 6, 10_000  # events to learn from, and the particles of each
LEARNT_ON, WEIGHT, EFFICIENCY = 4, 10, 0.995  # the first events
SMEAR = 0.2  # of the logarithm of a collision's momenta
MADE = (
    "scripts/physics/odd_windows.py --learn, from four events of ColliderML's production and eight "
    "simulated ones; docs/results/odd_windows.json says what they keep of these and of other events"
)


def collision(event: Event, rng: np.random.Generator) -> Columns:
    """Returns the charged particles of an event that leave hits, at another place of the beam."""
    assert event.particles is not None
    columns = ("vx", "vy", "vz", "px", "py", "pz", "q", "nhits")
    table = np.stack([event.particles[name].astype(np.float64) for name in columns])
    pt, (charges, nhits) = np.hypot(table[3], table[4]), table[6:]
    vx, vy, vz, px, py, pz, q, _ = table[:, (np.abs(charges) == 1) & (nhits > 0) & (pt > 0.1)]
    vz = vz - np.median(vz)
    turn, (side, charge) = rng.uniform(-np.pi, np.pi), rng.choice([-1, 1], 2)
    cos, sin, scale = np.cos(turn), np.sin(turn), np.exp(rng.normal(size=len(q)) * SMEAR)
    return {
        "vx": cos * vx - sin * charge * vy,
        "vy": sin * vx + cos * charge * vy,
        "vz": side * vz + rng.normal() * ODD_BEAM_SIGMA_Z,
        "px": scale * (cos * px - sin * charge * py),
        "py": scale * (sin * px + cos * charge * py),
        "pz": scale * side * pz,
        "q": charge * q,
    }


def crowded(events: list[Event], number: int) -> Event:
    """Simulates an event of PARTICLES particles, from collisions of `events`."""
    rng = np.random.default_rng([1, number])
    collisions: list[Columns] = []
    while sum(len(one["q"]) for one in collisions) < PARTICLES:
        collisions.append(collision(events[rng.integers(len(events))], rng))
    every = np.concatenate([np.stack(list(one.values())) for one in collisions], axis=1)
    particles = dict(zip(collisions[0], every[:, :PARTICLES], strict=True))
    particles["particle_id"] = np.arange(1, PARTICLES + 1)
    return event_of_particles(particles, number, ODD_LAYERS, rng)


def judge(used: Windows, event: Event) -> dict[str, Any]:
    """Counts hits, doublets, target edges (3 hits, 1 GeV), and those among the doublets."""
    edges, n_hits = true_edges(event), len(event.hits["x"])
    target = edges[:, is_target(event, 1.0)[edges[0]]]
    doublets = build_doublets(event.hits, used)
    kept = np.isin(target[0] * n_hits + target[1], doublets[0] * n_hits + doublets[1])
    counts = {"hits": n_hits, "doublets": doublets.shape[1], "kept": int(kept.sum())}
    return counts | {"target_edges": target.shape[1], "efficiency": float(kept.mean())}


def summarise(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Returns the efficiency and the doublets per kept edge of some events together."""
    total = {name: sum(row[name] for row in rows) for name in ("doublets", "target_edges", "kept")}
    cost = total["doublets"] / total["kept"]
    return {"efficiency": total["kept"] / total["target_edges"], "doublets_per_kept_edge": cost}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("events", type=Path)
    parser.add_argument("--learn", type=Path, metavar="FILE", help="write learnt windows")
    parser.add_argument("--before", type=Path, metavar="FILE", help="windows to compare with")
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("odd_windows", arguments)
    events = [read_event(arguments.events, name) for name in find_events(arguments.events)]
    known, held_back = events[:LEARNT_ON], events[LEARNT_ON:]
    if arguments.learn:
        made = [simulate_event(PARTICLES, 1, i, ODD_LAYERS) for i in range(SIMULATED)]
        made += [crowded(known, i) for i in range(CROWDED)]
        learnt = learn_windows(made + known * WEIGHT, MADE, EFFICIENCY)
        windows.write_windows(arguments.learn, learnt)
    judged = {"after": read_windows(arguments.learn) if arguments.learn else builtin_windows("odd")}
    judged |= {"before": read_windows(arguments.before)} if arguments.before else {}
    samples = {"learnt_on": known, "held_back": held_back, "crowded": [crowded(held_back, CROWDED)]}
    samples["simulated"] = [simulate_event(PARTICLES, 2000, 0, ODD_LAYERS)]
    found: dict[str, dict[str, Any]] = {}
    for when, used in judged.items():
        windows.FLAT = 0.0 if when == "before" else windows.FLAT
        rows = {name: [judge(used, one) for one in sample] for name, sample in samples.items()}
        rows["all"] = rows["learnt_on"] + rows["held_back"]
        found[when] = {name: {**summarise(some), "events": some} for name, some in rows.items()}
    summary = {name: one["efficiency"] for name, one in found["after"].items()}
    summary |= {f"{n}_cost": one["doublets_per_kept_edge"] for n, one in found["after"].items()}
    results.write(summary, pairs=len(judged["after"].pairs), **found)


if __name__ == "__main__":
    exit_on_bad_input("odd_windows.py", main)
