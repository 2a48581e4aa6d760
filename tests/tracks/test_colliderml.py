"""ColliderML's metrics against the package's own functions, and counted by hand."""

import numpy as np
import pytest

from tests.tracks.colliderml_tables import NAMES, Truth, judged, random_rows, random_truth, theirs


def test_random_submissions() -> None:
    draw = np.random.default_rng(17)
    seen: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(60):
        weighted, claims = draw.random() < 0.5, draw.random() < 0.8
        events = [random_truth(draw, weighted) for _ in range(int(draw.integers(1, 4)))]
        submission = [random_rows(draw, truth) for truth in events]
        ours, other = judged(events, submission, claims), theirs(events, submission, claims)
        for name in NAMES:
            assert getattr(ours, name) == pytest.approx(other[name], abs=1e-6), name
            seen[name].append(other[name])
    for name, values in seen.items():
        assert sum(0 < value < 1 for value in values) > 24, f"{name} says too little"


def test_ties_go_to_the_particle_listed_first() -> None:
    """Tracks half of one particle: correct if that one is whole in it, wherever it is listed."""
    truth = Truth([1, 1, 2, 2, 2, 2], None, [])
    whole_first = [(0, 5, 0), (1, 5, 0), (2, 5, 0), (3, 5, 0)]
    for rows, correct in ((whole_first, 0.5), (whole_first[::-1], 0.5)):
        assert judged([truth], [rows], claims=False).trackml_eff == correct
        assert theirs([truth], [rows], claims=False)["trackml_eff"] == correct
    # Of the other particle it holds less than half: then the first listed decides.
    split = Truth([1, 1, 2, 2, 2, 2, 2], None, [])
    for rows, correct in ((whole_first, 0.5), (whole_first[::-1], 0.0)):
        assert judged([split], [rows], claims=False).trackml_eff == correct
        assert theirs([split], [rows], claims=False)["trackml_eff"] == correct


def test_what_it_does_not_punish() -> None:
    """Two of four particles found give 1, and so do claims alone (docs/colliderml.md)."""
    truth = Truth([1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4], None, [(n, 2.0, 0.0, True) for n in (1, 2)])
    found = [(hit, truth.particle[hit], 0) for hit in range(6)]
    left_out = judged([truth], [found], claims=True)
    assert (left_out.trackml_eff, left_out.fake_rate, left_out.dup_rate) == (1, 0, 0)
    assert left_out.physics_eff_pt1 == 0
    named = [(0, 7, 1), (1, 7, 2)]
    assert judged([truth], [named], claims=True).physics_eff_pt1 == 1
    # Every hit listed: those in no track make one track, and one particle made half of it.
    rest = [(hit, -1, 0) for hit in range(6, 12)]
    honest = judged([truth], [[*found, *rest]], claims=False)
    assert (honest.trackml_eff, honest.fake_rate) == (9 / 12, 0)
    # It is a fake where there are more particles.
    rest = [(hit, -1, 0) for hit in range(3, 12)]
    honest = judged([truth], [[*found[:3], *rest]], claims=False)
    assert (honest.trackml_eff, honest.fake_rate) == (3 / 12, 1 / 2)
