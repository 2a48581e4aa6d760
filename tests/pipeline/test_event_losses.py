"""Losses in a pipeline of stages made by hand, against plain Python."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bigtrk.events.event import Event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import hit_particles
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import hit_coordinates
from bigtrk.pipeline.evaluation import (
    CATEGORIES,
    DISTANCE_EDGES,
    PARTS,
    EventLosses,
    added_up,
    event_losses,
    nearest_distances,
)
from bigtrk.pipeline.stages import Pipeline
from bigtrk.tracks.bins import ETA_EDGES, HITS_EDGES, PT_EDGES, VERTEX_EDGES
from bigtrk.tracks.builders.registry import Components
from bigtrk.tracks.edge_metrics import SCORE_LIMITS
from bigtrk.tracks.matching import Criteria
from tests.oracle import stage_losses as plain

CUT, CRITERIA = 0.5, Criteria(min_hits=3, pt_min=0.3)


def with_hits_in_one_module(event: Event) -> Event:
    """Returns the event with all hits of one particle in one module, so that no edge joins them."""
    particle = hit_particles(event)
    ids, counts = np.unique(particle[particle > 0], return_counts=True)
    own = particle == ids[counts.argmax()]
    names = ("volume_id", "layer_id", "module_id")
    moved = {name: np.where(own, 99, event.hits[name]) for name in names}
    return replace(event, hits={**event.hits, **moved})


@dataclass(frozen=True)
class Places:
    """Hits by direction, three in ten anywhere."""

    seed: int

    def __call__(self, event: Event) -> NDArray[np.float32]:
        columns = hit_coordinates(event.hits)
        rng = np.random.default_rng(self.seed)
        place = np.stack(
            [np.cos(columns["phi"]), np.sin(columns["phi"]), columns["eta"]], axis=1
        ).astype(np.float32)
        lost = rng.random(len(place)) < 0.3
        place[lost] = rng.normal(size=(int(lost.sum()), 3)) * 3
        return place


@dataclass(frozen=True)
class Scores:
    """A score of each pair of hits, whatever the order of edges; higher within a particle."""

    particle: NDArray[np.int64]
    seed: int
    power: float

    def __call__(self, graph: EventGraph) -> torch.Tensor:
        source, destination = graph.edge_index.numpy()
        drawn = np.random.default_rng(self.seed).random((len(self.particle),) * 2)
        score = drawn[source, destination]
        same = self.particle[source] == self.particle[destination]
        return torch.from_numpy(np.where(same, score**self.power, score ** (1 / self.power)))


def pipeline_for(event: Event, seed: int) -> Pipeline:
    particle = hit_particles(event)
    stages: dict[str, Any] = {
        "embedding": Places(seed),
        "filter": Scores(particle, seed + 1, 0.5),
        "classifier": Scores(particle, seed + 2, 0.5),
        "builder": Components(0.8),
    }
    return Pipeline(radius=0.25, cut=0.5, **stages)


@pytest.fixture(scope="module")
def sent() -> list[tuple[Event, Pipeline, EventLosses]]:
    """Events sent through pipelines."""
    found = []
    for number in range(3):
        event = with_hits_in_one_module(simulate_event(100, 1, number))
        pipeline = pipeline_for(event, number)
        found.append((event, pipeline, event_losses(pipeline, event, CRITERIA, CUT)))
    return found


@dataclass(frozen=True)
class Seen:
    """Holds what plain Python finds in an event: the category of each particle to be found."""

    wanted: list[plain.Particle]
    long: list[plain.Particle]
    categories: list[str]
    left: dict[str, set[plain.Pair]]
    true: set[plain.Pair]


def seen_plainly(event: Event, pipeline: Pipeline) -> Seen:
    left: dict[str, set[plain.Pair]] = {}

    def watch(stage: str, edges: NDArray[np.int64], scores: Any) -> None:
        pairs = [plain.ordered(*pair) for pair in edges.T.tolist()]
        if scores is not None:
            pairs = [pair for pair, score in zip(pairs, scores, strict=True) if score > CUT]
        left[stage] = set(pairs)

    tracks, _ = pipeline.tracks(event, CRITERIA.min_hits, watch)
    groups = [set(np.flatnonzero(tracks == track).tolist()) for track in range(tracks.max() + 1)]
    pairs = plain.Left(**left, groups=plain.joined(left["classifier"]), tracks=groups)
    of_tracks = set[plain.Pair]().union(*(plain.as_particle(event, one).true for one in groups))
    particles = plain.particles_of(event)
    long = [one for one in particles if len(one.hits) >= CRITERIA.min_hits]
    wanted = [one for one in long if one.pt >= CRITERIA.pt_min]
    categories = [plain.category(one, pairs, CRITERIA.min_hits) for one in wanted]
    true = set[plain.Pair]().union(*(one.true for one in particles))
    return Seen(wanted, long, categories, {"event": true, **left, "builder": of_tracks}, true)


def counted(
    column: list[float], is_own: list[bool], edges: tuple[float, ...]
) -> tuple[list[int], list[int]]:
    """Counts the particles of each bin that are `is_own`, and all."""
    inside = [
        [own for x, own in zip(column, is_own, strict=True) if low <= x < high]
        for low, high in pairwise(edges)
    ]
    return [sum(each) for each in inside], [len(each) for each in inside]


def test_every_particle_is_in_the_class_that_plain_python_finds(
    sent: list[tuple[Event, Pipeline, EventLosses]],
) -> None:
    total = Counter[str]()
    for event, pipeline, losses in sent:
        seen = seen_plainly(event, pipeline)
        total.update(seen.categories)
        assert losses.losses == [seen.categories.count(name) for name in CATEGORIES]
        values: dict[str, tuple[list[float], tuple[float, ...]]] = {
            "pt": ([one.pt for one in seen.wanted], PT_EDGES),
            "eta": ([one.eta for one in seen.wanted], ETA_EDGES),
            "distance": ([plain.nearest(one, seen.long) for one in seen.wanted], DISTANCE_EDGES),
            "vertex": ([max(one.vertex, VERTEX_EDGES[0]) for one in seen.wanted], VERTEX_EDGES),
            "hits": ([float(len(one.hits)) for one in seen.wanted], HITS_EDGES),
        }
        for axis, (column, edges) in values.items():
            for name in CATEGORIES:
                binned = losses.loss_bins[f"{name}_by_{axis}"]
                expected = counted(column, [own == name for own in seen.categories], edges)
                assert (list(binned.part), list(binned.whole)) == expected, axis
    assert {*total} == {*CATEGORIES}, "the test has a particle of each class"


def test_what_stages_leave_is_what_plain_python_counts(
    sent: list[tuple[Event, Pipeline, EventLosses]],
) -> None:
    for event, pipeline, losses in sent:
        seen = seen_plainly(event, pipeline)
        target = set[plain.Pair]().union(*(one.true for one in seen.wanted))
        assert [*losses.stages] == [*PARTS]
        for stage, counts in losses.stages.items():
            left = seen.left[stage]
            findable = [
                plain.is_found(one, plain.joined(one.true & left), CRITERIA.min_hits)
                for one in seen.wanted
            ]
            assert counts["edges"] == len(left)
            assert counts["true_edges"] == len(left & seen.true)
            assert counts["target_edges"] == len(left & target)
            found = seen.categories.count("found")
            assert counts["findable"] == (found if stage == "builder" else sum(findable))
        above = losses.scores[:, SCORE_LIMITS.index(CUT) :].sum(axis=1).tolist()
        kept = losses.stages["classifier"]
        others = kept["true_edges"] - kept["target_edges"]
        assert above == [kept["target_edges"], others, kept["edges"] - kept["true_edges"]]
        assert losses.scores.sum() == losses.stages["filter"]["edges"]


def test_numbers_add_up(sent: list[tuple[Event, Pipeline, EventLosses]]) -> None:
    losses = [each for *_, each in sent]
    found = added_up(losses, CRITERIA.matchings())
    counts, tracks = found["losses"], found["tracks"]
    [strict] = [x for x in tracks.matching if (x.style, x.mode) == ("ATLAS", "strict")]
    assert sum(counts.values()) == strict.n_particles
    assert counts["found"] == strict.n_reconstructed
    for name, binned in found["loss_bins"].items():
        assert (
            sum(binned.part) + binned.outside[0] + binned.unknown[0]
            == (counts[name.rpartition("_by_")[0]])
        )
        assert sum(binned.whole) + binned.outside[1] + binned.unknown[1] == strict.n_particles
    stages = found["stages"]
    for before, after in pairwise(stages[:4]):
        assert after.target_edges < before.target_edges
        assert after.findable < before.findable
    assert stages[-1].findable == strict.n_reconstructed
    spent = [sum(each.passage.seconds.values()) for each in losses]
    assert sum(stage.seconds for stage in stages) == pytest.approx(sum(spent) / len(spent))


def test_the_nearest_particle_is_found_across_the_turn() -> None:
    eta = np.array([0.0, 0.0, 0.5, 1.0, math.nan, math.inf, 3.0])
    phi = np.array([math.pi - 0.01, -math.pi + 0.02, -1e-20, 0.0, 0.0, 0.0, 2.0])
    found = nearest_distances(eta, phi)
    assert found[:4].tolist() == pytest.approx([0.03, 0.03, 0.5, 0.5])
    assert np.isnan(found[4:6]).all()
    assert found[6] == pytest.approx(math.hypot(2.0, 2.0))
