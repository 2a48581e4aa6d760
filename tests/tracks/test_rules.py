"""Published rules, on golden cases by hand."""

import numpy as np
import pytest

from bigtrk.events.event import Columns, Event
from bigtrk.tracks.rules import RULES, RuleCounts

# Particle: its hits' (volume, layer), pT (GeV).
PARTICLES = {
    1: ([(8, 2), (8, 4), (8, 6), (8, 8)], 2.0),
    2: ([(8, 2), (8, 4), (8, 6), (13, 2), (13, 4)], 1.0),  # three of five in the pixels
    3: ([(8, 2), (8, 2), (8, 4)], 5.0),  # two layers
    4: ([(8, 2), (8, 4), (8, 6)], 0.7),  # soft
}


def made() -> Event:
    rows = [
        (particle, volume, layer)
        for particle, (places, _) in PARTICLES.items()
        for volume, layer in places
    ] + [(0, 8, 2)] * 3  # noise
    particle, volume, layer = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    n = len(rows)
    hits = {"hit_id": np.arange(n), "x": np.full(n, 100.0), "y": np.zeros(n), "z": np.zeros(n)}
    hits |= {"volume_id": volume, "layer_id": layer, "module_id": np.arange(n)}
    ids = np.array(list(PARTICLES), np.int64)
    table: Columns = {"particle_id": ids}
    table |= {name: np.zeros(4) for name in ("vx", "vy", "vz", "py", "pz")}
    table |= {"px": np.array([pt for _, pt in PARTICLES.values()]), "q": np.ones(4)}
    weight = np.where(particle > 0, 1 / 15, 0.0)  # of 15 hits of particles
    truth = {"hit_id": hits["hit_id"], "particle_id": particle, "weight": weight}
    return Event("event000000000", hits, None, table, truth)


# Rows: 4 hits of particle 1, 5 of 2, 3 of 3, 3 of 4, 3 of noise.
PERFECT = [0] * 4 + [1] * 5 + [2] * 3 + [3] * 3 + [-1] * 3
MIXED = [0, 0, 0, 1] + [1, 1, 5, -1, -1] + [2] * 3 + [1, 1, 3] + [4] * 3


def counted(track_id: list[int]) -> dict[str, RuleCounts]:
    event = made()
    return {rule.name: rule.count(event, np.array(track_id, np.int64)) for rule in RULES}


def test_perfect_tracks_have_no_fakes() -> None:
    found = counted(PERFECT)
    assert found["HEPTv2"] == RuleCounts(particles=2, found=2, tracks=2, fakes=0)
    assert found["hepattn 600 MeV"] == RuleCounts(particles=4, found=4, tracks=4, fakes=0)
    assert found["hepattn 900 MeV"] == RuleCounts(particles=3, found=3, tracks=4, fakes=0)
    assert found["acorn"] == RuleCounts(particles=3, found=3, tracks=4, fakes=0)
    assert (found["ColliderML"].tracks, found["ColliderML"].fakes) == (4, 0)
    assert found["ColliderML"].found == pytest.approx(found["ColliderML"].particles)
    assert found["TrackML"].found == pytest.approx(found["TrackML"].particles)


def test_a_mixed_track_counts_where_a_target_has_its_majority() -> None:
    """Track 1 has two hits of particle 2, two of 4 and one of 1: of equal ones the smaller id."""
    found = counted(MIXED)
    assert found["HEPTv2"] == RuleCounts(particles=2, found=1, tracks=2, fakes=1)
    # Also the track of noise is a fake here.
    assert found["hepattn 600 MeV"] == RuleCounts(particles=4, found=2, tracks=4, fakes=2)
    # Particle 3 alone keeps half of its hits beside half of its track's; noise makes one, too.
    assert found["acorn"] == RuleCounts(particles=3, found=2, tracks=4, fakes=1)
    # Track 1 is of no particle; tracks of a hit are pure.
    assert (found["ColliderML"].tracks, found["ColliderML"].fakes) == (6, 1)
    assert found["TrackML"].found == pytest.approx(6 / 15)
