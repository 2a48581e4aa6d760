"""Random submissions for ColliderML's tracking task, judged by bigtrk and by the package."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from colliderml.tasks.tracking import metrics as public
from numpy.random import Generator

from bigtrk.events.event import Columns, Event
from bigtrk.records.evaluation import ColliderMLMetrics
from bigtrk.tracks.colliderml import NOTHING, count_submitted
from bigtrk.tracks.files import HitTracks

NAMES = ("trackml_eff", "fake_rate", "dup_rate", "physics_eff_pt1")
OF_HITS = {
    "trackml_eff": public.trackml_weighted_efficiency,
    "fake_rate": public.fake_rate,
    "dup_rate": public.duplicate_rate,
}
Rows = list[tuple[int, int, int]]  # hit, track, claimed particle


@dataclass
class Truth:
    """An event in plain Python: particle and weight of each hit; id, px, py, primary."""

    particle: list[int]
    weight: list[float] | None
    particles: list[tuple[int, float, float, bool]]

    def event(self, number: int) -> Event:
        """Makes the event that bigtrk would read."""
        n_hits = len(self.particle)
        truth: Columns = {
            "hit_id": np.arange(n_hits),
            "particle_id": np.array(self.particle, np.int64),
        }
        if self.weight is not None:
            truth["weight"] = np.array(self.weight)
        particles: Columns = {
            name: np.array([one[place] for one in self.particles])
            for place, name in enumerate(("particle_id", "px", "py", "primary"))
        }
        particles["particle_id"] = particles["particle_id"].astype(np.int64)
        hits: Columns = {"hit_id": np.arange(n_hits)}
        return Event(f"event{number:09d}", hits, particles=particles, truth=truth)


def judged(events: list[Truth], submission: list[Rows], claims: bool) -> ColliderMLMetrics:
    """Judges a submission by bigtrk."""
    counts = NOTHING
    for number, (truth, rows) in enumerate(zip(events, submission, strict=True)):
        hit, track, claimed = np.array(rows, np.int64).reshape(-1, 3).T
        listed = HitTracks(hit, track, "mine", hit, claimed if claims else None)
        counts += count_submitted(truth.event(number), listed)
    return counts.metrics()


def theirs(events: list[Truth], submission: list[Rows], claims: bool) -> dict[str, float]:
    """Judges the same tables by the package."""
    flat = [(number, *row) for number, rows in enumerate(submission) for row in rows]
    columns = ["event_id", "hit_id", "track_id", "majority_particle_id"][: 4 if claims else 3]
    given = pa.table(
        {
            name: pa.array([row[place] for row in flat], pa.int64())
            for place, name in enumerate(columns)
        }
    )
    hits = [
        {"event_id": number, "hit_id": hit, "particle_id": particle}
        | ({} if truth.weight is None else {"weight": truth.weight[hit]})
        for number, truth in enumerate(events)
        for hit, particle in enumerate(truth.particle)
    ]
    ids = ("particle_id", "px", "py", "primary")
    particles = [dict(zip(ids, one, strict=True)) for truth in events for one in truth.particles]
    found = {name: metric(given, pa.Table.from_pylist(hits)) for name, metric in OF_HITS.items()}
    momenta = pa.Table.from_pylist(particles)
    return found | {"physics_eff_pt1": public.physics_eff_pt1(given, momenta)}


def random_truth(draw: Generator, weighted: bool) -> Truth:
    """Draws an event: few particles with many hits, ids that several events share, noise."""
    ids = [int(one) for one in draw.choice([*range(1, 9), 2**40, 2**62], 6, replace=False)]
    n_hits = int(draw.integers(1, 60))
    momenta = draw.choice([0.0, 0.6, 0.8, 1.0, 3.0], (len(ids), 2)).tolist()
    primary = draw.integers(0, 3, len(ids)).astype(bool).tolist()
    return Truth(
        particle=[int(one) for one in draw.choice([0, *ids], n_hits)],
        # Eighths add up exactly, so that halves are met.
        weight=(draw.integers(1, 9, n_hits) / 8).tolist() if weighted else None,
        particles=[
            (one, px, py, first) for one, (px, py), first in zip(ids, momenta, primary, strict=True)
        ],
    )


def random_rows(draw: Generator, truth: Truth) -> Rows:
    """Draws an event's rows: particles mixed up, split, merged and cut short; hits that are left
    out, listed twice, not there or in no track; tracks of one hit; now and then no rows at all.
    """
    n_hits = len(truth.particle)
    if draw.random() < 0.1:
        return []
    listed = draw.choice(n_hits, int(draw.integers(0, n_hits + 1)), replace=False).tolist()
    listed += draw.integers(0, n_hits + 3, int(draw.integers(0, 4))).tolist()
    rows = []
    for hit in draw.permutation(listed).tolist():
        whose = truth.particle[hit] if hit < n_hits else 0
        kept = [whose, whose, whose + 1, whose // 2, int(draw.integers(100, 200)), -1]
        named = [whose, -1, 0, int(draw.integers(1, 9))]
        rows.append((int(hit), kept[draw.integers(0, 6)], named[draw.integers(0, 4)]))
    return rows
