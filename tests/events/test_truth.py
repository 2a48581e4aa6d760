import re
from collections import defaultdict
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigtrk import console
from bigtrk.errors import InputError
from bigtrk.events.event import Columns, Event
from bigtrk.events.reader import read_event
from bigtrk.events.truth import hit_particles, hit_weights, particle_kinematics, true_edges
from tests.events.conftest import NAME

BASE = 2**53 + 1  # odd: float64 would break it


def brute_force_edges(event: Event) -> set[tuple[int, int]]:
    assert event.truth is not None
    particle_of = dict(
        zip(event.truth["hit_id"].tolist(), event.truth["particle_id"].tolist(), strict=True)
    )
    vertex: dict[int, tuple[float, ...]] = defaultdict(lambda: (0.0, 0.0, 0.0))
    if event.particles is not None:
        rows = zip(*(event.particles[n].tolist() for n in ("particle_id", "vx", "vy", "vz")))  # noqa: B905
        vertex.update({row[0]: row[1:] for row in rows})
    tracks = defaultdict(list)
    hits = event.hits
    for row, hit in enumerate(hits["hit_id"].tolist()):
        particle = particle_of.get(hit, 0)
        if particle:
            point = [float(hits[axis][row]) for axis in "xyz"]
            distance = sum((a - b) ** 2 for a, b in zip(point, vertex[particle], strict=True))
            layer = (int(hits["volume_id"][row]), int(hits["layer_id"][row]))
            tracks[particle].append((distance, row, layer))
    edges = set()
    for track in tracks.values():
        groups = [list(g) for _, g in groupby(sorted(track), key=lambda hit: hit[2])]
        for inner, outer in pairwise(groups):
            edges |= {(a[1], b[1]) for a in inner for b in outer}
    return edges


def as_set(edges: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> set[tuple[int, int]]:
    pairs = {(int(a), int(b)) for a, b in edges.T}
    assert len(pairs) == edges.shape[1]
    return pairs


@st.composite
def events(draw: st.DrawFn) -> Event:
    count = draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    hit_id = rng.permutation(np.arange(3, 3 + count))
    hits: Columns = {
        "hit_id": hit_id,
        **{axis: rng.normal(size=count) * 100 for axis in "xyz"},
        "volume_id": rng.integers(7, 9, count),
        "layer_id": rng.integers(1, 3, count) * 2,
        "module_id": np.ones(count, dtype=np.int64),
    }
    listed = BASE + 2 * rng.permutation(3)[: rng.integers(0, 4)]
    particles: Columns = {"particle_id": listed} | {
        name: rng.normal(size=len(listed)) for name in ("vx", "vy", "vz", "px", "py", "pz")
    }
    in_truth = rng.permutation(count)[: rng.integers(0, count + 1)]
    choices = np.array([0, BASE, BASE + 2, BASE + 4])
    truth: Columns = {"hit_id": hit_id[in_truth], "particle_id": rng.choice(choices, len(in_truth))}
    return Event("event1", hits, None, particles if draw(st.booleans()) else None, truth)


@settings(max_examples=100, deadline=None)
@given(events())
def test_true_edges_equal_a_loop_over_particles(event: Event) -> None:
    assert as_set(true_edges(event)) == brute_force_edges(event)


@settings(max_examples=50, deadline=None)
@given(events())
def test_kinematics_equal_a_loop_over_particles(event: Event) -> None:
    table = particle_kinematics(event)
    assert event.truth is not None
    seen = event.truth["particle_id"].tolist()
    listed = [] if event.particles is None else event.particles["particle_id"].tolist()
    assert table["particle_id"].tolist() == sorted({*seen, *listed} - {0})
    for row, particle in enumerate(table["particle_id"].tolist()):
        assert table["nhits"][row] == seen.count(particle)
        if particle not in listed:
            assert np.isnan([float(table[name][row]) for name in ("pt", "eta", "vx")]).all()
            continue
        assert event.particles is not None
        place = listed.index(particle)
        px, py, pz = (float(event.particles[n][place]) for n in ("px", "py", "pz"))
        theta = np.arctan2(np.hypot(px, py), pz)
        assert table["pt"][row] == pytest.approx(np.hypot(px, py))
        assert table["eta"][row] == pytest.approx(-np.log(np.tan(theta / 2)))
        assert table["phi"][row] == pytest.approx(np.arctan2(py, px))
        assert table["vy"][row] == event.particles["vy"][place]


def test_hits_missing_from_the_truth_are_noise_and_the_first_row_counts() -> None:
    zeros = np.zeros(3)
    ids = np.ones(3, dtype=np.int64)
    hits = {"hit_id": np.array([5, 3, 4]), "x": zeros, "y": zeros, "z": zeros}
    hits |= {"volume_id": ids, "layer_id": ids}
    truth = {"hit_id": np.array([4, 4, 5]), "particle_id": np.array([BASE, BASE + 2, BASE + 4])}
    assert hit_particles(Event("event1", hits, truth=truth)).tolist() == [BASE + 4, 0, BASE]


def test_hits_alone_make_no_labels(tiny: Path) -> None:
    (tiny / "event000000007-truth.csv").unlink()
    event = read_event(tiny)
    for function in (hit_particles, true_edges, particle_kinematics):
        with pytest.raises(InputError, match=r"event000000007: .*labels cannot be made; add"):
            function(event)


def test_weights_are_of_the_hits_in_their_order() -> None:
    hits: Columns = {"hit_id": np.array([5, 3, 9, 4])}
    truth: Columns = {"hit_id": np.array([9, 3, 5]), "weight": np.array([0.5, np.nan, 0.25])}
    found = np.array(hit_weights(Event("event1", hits, truth=truth)))
    assert np.array_equal(found, [0.25, np.nan, 0.5, 0.0], equal_nan=True)
    assert hit_weights(Event("event1", hits, truth={"hit_id": hits["hit_id"]})) is None
    for weight in (-0.5, 1e300, np.inf):
        table: Columns = {"hit_id": np.array([9, 3]), "weight": np.array([0.5, weight])}
        with pytest.raises(InputError, match="event1-truth, row 3: the weight of hit 3 is"):
            hit_weights(Event("event1", table, truth=table))


@pytest.mark.parametrize(
    ("table", "old", "new", "said"),
    [
        ("particles", "1,2\n", "1,2\n0,0,0,1,1,0,0.5,1,1\n", "lists id 0, .* 1 hit will be noise"),
        ("particles", "4503668346847233", "7", r"2 of 3 hits .* 1 particle, such as 450366834684"),
        ("truth", "1,4503668346847233", "1,9007199254740994", "if float64 has rounded ids"),
        ("truth", "1,4503668346847233", "1,-1", "if -1 is noise, write 0"),
        ("truth", "3,0,", "3,4503668346847233,", "4503668346847233 has 3 hits, but its nhits is 2"),
        ("truth", "2,4503668346847233", "2,0", ""),
    ],
)
def test_truth_that_particles_contradict_is_said(
    tiny: Path,
    table: str,
    old: str,
    new: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(console, "_warned", set())
    path = tiny / f"{NAME}-{table}.csv"
    path.write_text(path.read_text().replace(old, new))
    read_event(tiny)
    printed = capsys.readouterr().err
    assert re.search(said, printed) if said else not printed
