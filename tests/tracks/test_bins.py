"""Bins of edges, particles and tracks against counting in plain loops."""

import math
from typing import get_args

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.graphs.event_graph import EventGraph, whole_sector
from bigtrk.records.evaluation import Binned
from bigtrk.tracks.bins import ETA_EDGES, HITS_EDGES, PT_EDGES, VERTEX_EDGES, binned_ratio
from bigtrk.tracks.edge_metrics import edge_bins, edge_metrics
from bigtrk.tracks.evaluation import track_bins
from bigtrk.tracks.matching import Matching, Mode, Particles, match_tracks
from tests.tracks.small_event import small_event

NAN = math.nan
PTS = (NAN, 0.05, 0.1, 0.7, 1.0, 1.4, 5.0, 1000.0)
ETAS = (NAN, -math.inf, -4.0, -0.5, 0.2, 0.5, 3.99, 4.0)
Counts = dict[str, list[int]]


def by_hand(pairs: list[tuple[float, bool]], edges: tuple[float, ...]) -> Counts:
    """Parts and wholes by bin, then outside, then unknown."""
    part, whole = [0] * (len(edges) + 1), [0] * (len(edges) + 1)
    for value, counts in pairs:
        place = len(edges) if math.isnan(value) else len(edges) - 1
        for k in range(len(edges) - 1):
            if edges[k] <= value < edges[k + 1]:
                place = k
        whole[place] += 1
        part[place] += counts
    return {"part": part, "whole": whole}


def flat(ratio: Binned) -> Counts:
    """Lists the counts as `by_hand` does."""
    return {
        name: [*getattr(ratio, name), ratio.outside[place], ratio.unknown[place]]
        for place, name in enumerate(("part", "whole"))
    }


@given(
    st.lists(st.tuples(st.one_of(st.sampled_from(PTS + PT_EDGES), st.floats(0, 50)), st.booleans()))
)
def test_every_value_is_in_one_place(pairs: list[tuple[float, bool]]) -> None:
    values = np.array([value for value, _ in pairs], np.float64)
    ratio = binned_ratio(values, np.array([x for _, x in pairs], bool), PT_EDGES)
    assert flat(ratio) == by_hand(pairs, PT_EDGES)
    assert sum(flat(ratio)["whole"]) == len(pairs)


def test_a_record_has_its_bins_and_beside_them_what_is_in_none() -> None:
    values = np.array([0.5, 1.0, 1.5, 2.0, 4.0, 9.0, NAN])
    found = binned_ratio(values, values < 2, (1.0, 2.0, 4.0))
    assert (found.edges, found.part, found.whole) == ((1.0, 2.0, 4.0), (2, 0), (2, 1))
    assert (found.outside, found.unknown) == ((1, 3), (0, 1))


@given(
    hits=st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 4)), min_size=1, max_size=20),
    pt=st.lists(st.sampled_from(PTS), min_size=4, max_size=4),
    eta=st.lists(st.sampled_from(ETAS), min_size=4, max_size=4),
    shift=st.floats(-4, 4),
    mode=st.sampled_from(get_args(Mode)),
    pt_min=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_particles_and_tracks(
    hits: list[tuple[int, int]],
    pt: list[float],
    eta: list[float],
    shift: float,
    mode: Mode,
    pt_min: float,
) -> None:
    ids = (1, 2, 3, 4)
    of_hit = [particle for _, particle in hits]
    hit_eta = [float(np.float32(0.2 * i + shift)) for i in range(len(hits))]
    pts, etas = dict(zip(ids, pt, strict=True)), dict(zip(ids, eta, strict=True))
    event = small_event(of_hit, [], pts, etas, lost_hits=1)
    assert event.particles is not None
    table = Particles(
        event.particles.particle_id.numpy(),
        event.particles.pt.numpy(),
        event.particles.nhits.numpy(),
    )
    track_id = np.array([track for track, _ in hits], np.int64)
    matching = Matching("ATLAS", mode, pt_min=pt_min, min_track_length=2, hits_min=2)
    judgement = match_tracks(track_id, np.array(of_hit, np.int64), table, matching)
    bins = track_bins(judgement, event.particles, track_id, np.array(hit_eta))

    tracks: dict[int, list[int]] = {}
    for i, (track, _) in enumerate(hits):
        if track >= 0:
            tracks.setdefault(track, []).append(i)
    times, fakes = dict.fromkeys(range(5), 0), []
    for own in tracks.values():
        if len(own) >= 2:
            owners = [p for p in range(5) if 2 * sum(of_hit[i] == p for i in own) > len(own)]
            owners = [p for p in owners if p or mode == "acorn"]
            for p in owners:
                times[p] += 1
            fakes.append((math.fsum(hit_eta[i] for i in own) / len(own), not owners))
    size = {p: of_hit.count(p) + (mode == "strict") for p in ids}
    wanted = [p for p in ids if size[p] >= 2 and (pt_min == 0 or pts[p] >= pt_min)]
    n_hits = {p: float(of_hit.count(p) + 1) for p in ids}
    at_beam = dict.fromkeys(ids, VERTEX_EDGES[0])
    for name, values, edges in (
        *(("pt", pts, PT_EDGES), ("eta", etas, ETA_EDGES)),
        *(("hits", n_hits, HITS_EDGES), ("vertex", at_beam, VERTEX_EDGES)),
    ):
        single = name in ("pt", "eta")  # columns of the table in single precision
        value = {p: float(np.float32(values[p])) if single else values[p] for p in ids}
        found = [(value[p], times[p] > 0) for p in wanted]
        twice = [(value[p], times[p] > 1) for p in wanted if times[p]]
        assert flat(bins[f"efficiency_by_{name}"]) == by_hand(found, edges)
        assert flat(bins[f"duplicates_by_{name}"]) == by_hand(twice, edges)
    # Sums in another order differ by rounding, which may cross an edge of a bin.
    if all(min(abs(x - edge) for edge in ETA_EDGES) > 1e-9 for x, _ in fakes):
        assert flat(bins["fakes_by_eta"]) == by_hand(fakes, ETA_EDGES)
    metrics = judgement.metrics
    assert sum(flat(bins["efficiency_by_pt"])["whole"]) == metrics.n_particles
    assert sum(flat(bins["efficiency_by_pt"])["part"]) == metrics.n_reconstructed
    assert sum(flat(bins["fakes_by_eta"])["part"]) == metrics.n_tracks - metrics.n_matched


EDGES = st.tuples(
    *(st.integers(0, 9), st.integers(0, 9)),
    *(st.booleans(), st.sampled_from([-1.0, 0.0, 1.0]), st.sampled_from([0.2, 0.5, 0.9])),
)


@given(
    edges=st.lists(EDGES, max_size=20),
    of_hit=st.lists(st.integers(0, 3), min_size=10, max_size=10),
    pt=st.lists(st.sampled_from(PTS), min_size=2, max_size=2),
    eta=st.lists(st.sampled_from(ETAS), min_size=2, max_size=2),
)
def test_edges(
    edges: list[tuple[int, int, bool, float, float]],
    of_hit: list[int],
    pt: list[float],
    eta: list[float],
) -> None:
    edges.sort(key=lambda edge: (edge[1], edge[0]))
    hit_eta = [0.25 * i - 1 for i in range(10)]
    pts, etas = dict(zip((1, 2), pt, strict=True)), dict(zip((1, 2), eta, strict=True))
    event = small_event(of_hit, [(a, b, true) for a, b, true, _, _ in edges], pts, etas, hit_eta)
    weights = torch.tensor([weight for *_, weight, _ in edges])
    scores = torch.tensor([score for *_, score in edges])
    bins = edge_bins(event, scores, weights, 0.5)

    by_pt, by_eta, purity = [], [], []
    for a, b, true, weight, score in edges:
        target = true and weight > 0
        if target:
            # Particle 3 is not in the table.
            by_pt.append((float(np.float32(pts.get(of_hit[b], NAN))), score > 0.5))
            by_eta.append((float(np.float32(etas.get(of_hit[b], NAN))), score > 0.5))
        if score > 0.5 and (target or not true):
            purity.append(((hit_eta[a] + hit_eta[b]) / 2, target))
    assert flat(bins["efficiency_by_pt"]) == by_hand(by_pt, PT_EDGES)
    assert flat(bins["efficiency_by_eta"]) == by_hand(by_eta, ETA_EDGES)
    assert flat(bins["purity_by_eta"]) == by_hand(purity, ETA_EDGES)

    assert event.y is not None
    metrics = edge_metrics(torch.logit(scores.double()), event.y, weights)
    assert sum(flat(bins["efficiency_by_pt"])["whole"]) == metrics.n_target
    assert sum(flat(bins["purity_by_eta"])["part"]) == metrics.n_found


def test_graphs_without_particles_have_purity_only_and_without_eta_nothing() -> None:
    graph = EventGraph(
        name="foreign",
        node_feature_names=("eta",),
        edge_feature_names=(),
        node_features=torch.zeros(2, 1),
        edge_index=torch.tensor([[0], [1]]),
        edge_features=torch.zeros(1, 0),
        y=torch.tensor([True]),
    )
    scores, weights = torch.ones(1), torch.ones(1)
    assert edge_bins(whole_sector(graph), scores, weights, 0.5).keys() == {"purity_by_eta"}
    other = EventGraph(**{**vars(graph), "node_feature_names": ("r",)})
    assert edge_bins(whole_sector(other), scores, weights, 0.5) == {}
