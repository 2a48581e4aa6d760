"""Tests what becomes of particles: one of each kind by hand, and the sum over any event."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.errors import InputError
from bigtrk.tracks.evaluation import CATEGORIES, TrackOptions, score_tracks, summarise_tracks
from tests.tracks.small_event import small_event

OPTIONS = TrackOptions(pt_min=1.0)
KEPT, CUT = 0.9, 0.1
# Particle 1 is found. 2 has hits but no true edge. 3 has four hits and true edges in pairs only.
# 4 loses the edge that makes three hits of two. 5 and 6 are joined by a false edge, half and half.
# 7 is as 2, but soft. 8 is found without a true edge, by edges that are false though its hits are
# its own, as those are that skip a hit.
HITS = (1,) * 3 + (2,) * 3 + (3,) * 4 + (4,) * 3 + (5,) * 3 + (6,) * 3 + (7,) * 3 + (8,) * 3
EDGES = (
    *((0, 1, True, KEPT), (1, 2, True, KEPT)),
    (3, 4, False, CUT),
    *((6, 7, True, KEPT), (8, 9, True, KEPT)),
    *((10, 11, True, KEPT), (11, 12, True, CUT)),
    *((13, 14, True, KEPT), (14, 15, True, KEPT), (15, 16, False, KEPT)),
    *((16, 17, True, KEPT), (17, 18, True, KEPT)),
    *((22, 23, False, KEPT), (23, 24, False, KEPT)),
)
PT = {**dict.fromkeys(range(1, 9), 2.0), 7: 0.5}


def by_category(
    edges: list[tuple[int, int, bool, float]], hits: list[int], pt: dict[int, float], lost: int = 0
) -> tuple[dict[str, int], int]:
    """The budget, and the particles that strict mode wants."""
    edges = sorted(edges, key=lambda edge: (edge[1], edge[0]))
    event = small_event(hits, [edge[:3] for edge in edges], pt, lost_hits=lost)
    scores = torch.tensor([score for *_, score in edges], dtype=torch.float64)
    summary = summarise_tracks([score_tracks(event, scores, OPTIONS)], OPTIONS)
    strict = summary.matching[1]
    assert (strict.style, strict.mode) == ("ATLAS", "strict")
    assert summary.losses["found"] == strict.n_reconstructed
    for name in CATEGORIES:
        for axis in ("pt", "eta"):
            binned = summary.loss_bins[f"{name}_by_{axis}"]
            counts = (*binned.part, binned.outside[0], binned.unknown[0])
            assert sum(counts) == summary.losses[name]
    assert strict.n_particles is not None
    return summary.losses, strict.n_particles


def test_one_particle_of_each_kind() -> None:
    losses, wanted = by_category(list(EDGES), list(HITS), PT)
    assert losses == {
        "found": 2,
        "no_true_edges": 1,
        "too_few_true_edges": 1,
        "true_edges_cut": 1,
        "merged": 2,
    }
    assert wanted == 7


def test_what_an_event_lacks_is_told() -> None:
    event, scores = small_event([1], [], {1: 2.0}), torch.empty(0, dtype=torch.float64)
    lacking: dict[str, dict[str, Any]] = {
        "table of particles": {"particles": None},
        "particle ids": {"particle_id": None},
    }
    for name, change in lacking.items():
        with pytest.raises(InputError, match=f"has no {name}, so its tracks cannot be matched"):
            score_tracks(replace(event, **change), scores, OPTIONS)


@given(
    hits=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    ends=st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=25),
    kept=st.lists(st.booleans(), min_size=25, max_size=25),
    pt=st.lists(st.sampled_from([math.nan, 0.5, 3.0]), min_size=3, max_size=3),
)
def test_categories_sum_to_the_reconstructable_particles(
    hits: list[int], ends: set[tuple[int, int]], kept: list[bool], pt: list[float]
) -> None:
    edges = [
        # Of the pairs of hits of one particle some are true, others skip a hit.
        (a, b, bool(hits[a]) and hits[a] == hits[b] and (a + b) % 3 > 0, KEPT if keep else CUT)
        for (a, b), keep in zip(sorted(ends), kept, strict=False)
    ]
    table = dict(zip((1, 2, 3), pt, strict=True))
    losses, wanted = by_category(edges, hits, table)
    assert sum(losses.values()) == wanted
    expected = dict.fromkeys(CATEGORIES, 0)
    for particle, momentum in table.items():
        if momentum >= 1 and hits.count(particle) >= 3:
            expected[what_becomes(particle, hits, edges)] += 1
    assert losses == expected


def what_becomes(particle: int, hits: list[int], edges: list[tuple[int, int, bool, float]]) -> str:
    """The definitions written out."""
    own = [true for a, _, true, _ in edges if hits[a] == particle]
    if is_found(particle, hits, [(a, b) for a, b, _, score in edges if score > 0.5]):
        return "found"
    if not any(own):
        return "no_true_edges"
    if not is_found(particle, hits, [(a, b) for a, b, true, _ in edges if true]):
        return "too_few_true_edges"
    if not is_found(particle, hits, [(a, b) for a, b, true, s in edges if true and s > 0.5]):
        return "true_edges_cut"
    return "merged"


def is_found(particle: int, hits: list[int], edges: list[tuple[int, int]]) -> bool:
    """A group of at least three connected hits, more than half of them the particle's."""
    groups = [{hit} for hit in range(len(hits))]
    for a, b in edges:
        one, other = (next(group for group in groups if x in group) for x in (a, b))
        if one is not other:
            groups.remove(other)
            one |= other
    return any(
        len(group) >= 3 and 2 * sum(hits[hit] == particle for hit in group) > len(group)
        for group in groups
    )
