"""Published rules, on golden cases by hand."""

import os
import runpy
from pathlib import Path

import numpy as np
import pytest

from bigtrk.events.event import Columns, Event
from bigtrk.events.reader import read_event
from bigtrk.events.truth import hit_particles, particle_kinematics
from bigtrk.tracks.rules import RULES, RuleCounts, in_pixels

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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The copy keyword")
def test_heptv2s_own_function_gives_the_same(testdata: Path) -> None:
    """BIGTRK_HEPTV2 is a checkout of Graph-COM/HEPTv2, which is not on the package index."""
    if not (folder := os.environ.get("BIGTRK_HEPTV2")):
        pytest.skip("BIGTRK_HEPTV2 names no checkout of Graph-COM/HEPTv2")
    theirs = runpy.run_path(str(Path(folder, "heptv2/eval/metrics.py")))["tracking_metrics"]
    event = read_event(testdata / "data" / "trackml_event1000")
    table, particle = particle_kinematics(event), hit_particles(event)
    random = np.random.default_rng(0)
    track_id = np.unique(particle, return_inverse=True)[1].astype(np.int64)
    mixed = random.random(len(track_id)) < 0.25
    track_id[mixed] = random.choice(track_id, int(mixed.sum()))
    x, y, z, volume, layer = (
        event.hits[name].astype(float) for name in ("x", "y", "z", "volume_id", "layer_id")
    )
    pixels = in_pixels(event)
    given = pixels & (np.abs(np.arcsinh(z / np.hypot(x, y))) <= 4)
    places = np.stack([particle[pixels], (100 * volume + layer)[pixels].astype(np.int64)])
    crossed, layers = np.unique(np.unique(places, axis=1)[0], return_counts=True)
    of_hit = np.searchsorted(table["particle_id"], particle[given]) % len(table["particle_id"])
    known = table["particle_id"][of_hit] == particle[given]
    found = theirs(
        truth=particle[given],
        predicted=track_id[given],
        pts=np.where(known, table["pt"][of_hit], 0.0),
        reconstructable=np.isin(particle[given], crossed[(crossed != 0) & (layers >= 3)]),
        pt_thlds=[0.9],
    )[0.9]
    ours = next(rule for rule in RULES if rule.name == "HEPTv2").count(event, track_id)
    assert ours.particles == found["n_particles"]
    assert ours.found / ours.particles == pytest.approx(found["double_majority"], abs=1e-12)
    # Where two particles have most hits of a track, theirs takes either: an unstable sort.
    assert ours.fakes / ours.tracks == pytest.approx(found["fake_rate"], abs=0.01)
