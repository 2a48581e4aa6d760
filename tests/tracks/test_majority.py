"""The particle of a track, against a loop."""

from collections import Counter

import numpy as np

from bigtrk.tracks.matching import majority_particles


def by_loop(tracks: list[int], particles: list[int]) -> list[int]:
    named = []
    for track in tracks:
        made = [p for t, p in zip(tracks, particles, strict=True) if t == track]
        particle, hits = Counter(made).most_common(1)[0]
        named.append(particle if track != -1 and 2 * hits > len(made) else 0)
    return named


def test_random_tracks() -> None:
    draw = np.random.default_rng(3)
    some = 0
    for _ in range(50):
        n_hits = int(draw.integers(0, 40))
        tracks, particles = draw.integers(-1, 8, n_hits), draw.integers(0, 4, n_hits)
        found = majority_particles(tracks, particles).tolist()
        assert found == by_loop(tracks.tolist(), particles.tolist())
        some += sum(particle > 0 for particle in found)
    assert some > 100
