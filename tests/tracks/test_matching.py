"""Track matching against acorn's own results and against counts by hand."""

import json
from collections import Counter
from pathlib import Path
from typing import get_args

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigtrk.tracks.matching import (
    Matching,
    Mode,
    Particles,
    Style,
    TrackMetrics,
    majority_particles,
    match_tracks,
)
from tests.tracks.subevent import SUBMISSIONS, read_subevent


def ids(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def test_every_golden_result(testdata: Path) -> None:
    event = read_subevent(testdata)
    golden = json.loads((testdata / "golden/track_matching/results.json").read_text())["results"]
    assert {key.split("|")[0] for key in golden} == set(SUBMISSIONS)
    for key, expected in golden.items():
        name, pt, length, style, noise = key.split("|")
        matching = Matching(
            style=style,
            mode="acorn",
            pt_min=float(pt.partition("=")[2]),
            min_track_length=int(length.partition("=")[2]),
        )
        kept = (event.particle_id != 0) | (noise == "noise_kept")
        found = match_tracks(
            event.submissions[name][kept], event.particle_id[kept], event.particles, matching
        ).metrics
        assert {
            "n_particles": found.n_particles,
            "n_reconstructed_particles": found.n_reconstructed,
            "n_tracks": found.n_tracks,
            "n_matched_tracks": found.n_matched,
            "eff": found.efficiency,
            "fake_rate": found.fake_rate,
            "dup_rate": found.duplicate_rate,
        } == expected, key


# Particle 7 has 4 hits in the event, one of them lost before track building; 8 has 2; the last
# two hits are noise and form track 2 with one hit of particle 8.
TRACKS = ids(0, 0, 0, 1, 2, 2, 2)
TRUTH = ids(7, 7, 7, 8, 8, 0, 0)
PARTICLES = Particles(ids(7, 8, 9), np.array([1.0, np.nan, 2.0]), ids(4, 2, 3))


def rates(style: Style, mode: Mode, **cuts: float) -> tuple[float | None, ...]:
    matching = Matching(style=style, mode=mode, **cuts)  # type: ignore[arg-type]
    found = match_tracks(TRACKS, TRUTH, PARTICLES, matching).metrics
    return found.efficiency, found.fake_rate, found.duplicate_rate


def test_noise_matches_in_acorn_mode_only() -> None:
    assert rates("ATLAS", "acorn") == (1 / 2, 0.0, 0.0)
    assert rates("ATLAS", "strict") == (1 / 3, 1 / 2, 0.0)


def test_strict_mode_counts_hits_and_particles_lost_before_track_building() -> None:
    assert rates("two_way", "acorn", matching_fraction=0.8) == (1 / 2, 1 / 2, 0.0)
    found = match_tracks(
        TRACKS, TRUTH, PARTICLES, Matching("two_way", matching_fraction=0.8)
    ).metrics
    assert (found.n_particles, found.n_reconstructed, found.n_matched) == (3, 0, 0)
    assert found.duplicate_rate is None


def test_unknown_pt_satisfies_no_threshold() -> None:
    assert match_tracks(TRACKS, TRUTH, PARTICLES, Matching(pt_min=0.5)).metrics.n_particles == 2
    assert match_tracks(TRACKS, TRUTH, PARTICLES, Matching(hits_min=3)).metrics.n_particles == 2


def test_no_hits_and_no_particles() -> None:
    nothing = match_tracks(ids(), ids(), Particles(ids(), np.ones(0), ids()), Matching()).metrics
    assert nothing == TrackMetrics(0, 0, 0, 0, 0)
    assert (nothing.efficiency, nothing.fake_rate, nothing.duplicate_rate) == (None, None, None)


def by_hand(tracks: list[int], truth: list[int], nhits: dict[int, int], matching: Matching) -> str:
    """The definitions written out over sets of hits."""
    of_track = {t: {i for i, v in enumerate(tracks) if v == t} for t in set(tracks) - {-1}}
    of_particle = {p: {i for i, v in enumerate(truth) if v == p} for p in set(truth)}
    fraction = matching.matching_fraction + 1e-6
    strict = matching.mode == "strict"
    long = {t for t, hits in of_track.items() if len(hits) >= matching.min_track_length}
    size = {p: nhits.get(p, 0) if strict else len(of_particle.get(p, ())) for p in nhits}
    candidates = {p for p, n in size.items() if n > 0}
    matched, found = set(), []
    for t in long:
        for p, hits in of_particle.items():
            shared = len(hits & of_track[t])
            n = max(size.get(p, 0), len(hits))
            pure = shared >= fraction * len(of_track[t]) and not (strict and p == 0)
            complete = shared >= fraction * n
            match = {"ATLAS": (pure, pure), "one_way": (pure, complete)}
            is_match, is_found = match.get(matching.style, (pure and complete,) * 2)
            if shared and is_match:
                matched.add(t)
            if shared and is_found and p in candidates:
                found.append(p)
    return str(
        (len(candidates), len(set(found)), len(found) - len(set(found)), len(long), len(matched))
    )


@given(
    hits=st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 5)), max_size=25),
    lost=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    style=st.sampled_from(get_args(Style)),
    mode=st.sampled_from(get_args(Mode)),
    length=st.integers(1, 4),
)
def test_against_the_definitions_written_out(
    hits: list[tuple[int, int]], lost: list[int], style: Style, mode: Mode, length: int
) -> None:
    tracks, truth = [t for t, _ in hits], [p for _, p in hits]
    nhits = {p: truth.count(p) + lost[p] for p in (1, 2, 3, 4)}  # 5 is missing from the table
    matching = Matching(style=style, mode=mode, min_track_length=length)
    table = Particles(ids(*nhits), np.ones(len(nhits)), ids(*nhits.values()))
    found = match_tracks(ids(*tracks), ids(*truth), table, matching).metrics
    counts = (
        found.n_particles,
        found.n_reconstructed,
        found.n_duplicates,
        found.n_tracks,
        found.n_matched,
    )
    assert str(counts) == by_hand(tracks, truth, nhits, matching)


def majority_by_loop(tracks: list[int], particles: list[int]) -> list[int]:
    named = []
    for track in tracks:
        made = [p for t, p in zip(tracks, particles, strict=True) if t == track]
        particle, hits = Counter(made).most_common(1)[0]
        named.append(particle if track != -1 and 2 * hits > len(made) else 0)
    return named


def test_the_majority_particle_of_random_tracks() -> None:
    draw = np.random.default_rng(3)
    some = 0
    for _ in range(50):
        n_hits = int(draw.integers(0, 40))
        tracks, particles = draw.integers(-1, 8, n_hits), draw.integers(0, 4, n_hits)
        found = majority_particles(tracks, particles).tolist()
        assert found == majority_by_loop(tracks.tolist(), particles.tolist())
        some += sum(particle > 0 for particle in found)
    assert some > 100
