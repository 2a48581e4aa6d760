"""Tests the comparison of track builders on the same scores, and the setting of pixels alone."""

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bigtrk.events.event import Event
from bigtrk.events.reader import read_event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import hit_particles, particle_kinematics
from bigtrk.events.writer import write_event
from bigtrk.graphs.builders.builder import WindowBuilder, build_graph
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.sector import whole_sector
from bigtrk.tracks import merge_tree_training
from bigtrk.tracks.builders.merge_tree import MergeTree
from bigtrk.tracks.builders.registry import Components
from bigtrk.tracks.evaluation import scored_graph
from bigtrk.tracks.files import HitTracks, write_tracks
from bigtrk.tracks.merge_tree_training import known_event
from bigtrk.training.evaluation.score_files import score_files
from scripts.docs.tables import stage_tables
from scripts.physics import pixel_setting
from scripts.physics.builder_scan import (
    CRITERIA,
    CUTS,
    Gain,
    Row,
    Scored,
    at_equal_fakes,
    best,
    gain,
    judged,
    scan,
)
from scripts.physics.builders_table import compare, summary
from scripts.physics.physics_pipeline import GROUPS, NUMBERS
from scripts.physics.physics_pipeline import summary as of_seeds


def scored(number: int) -> Scored:
    """Simulates an event; its true edges mostly score higher than others."""
    event = simulate_event(300, seed=5, event_id=number)
    whole = whole_sector(build_graph(event, WindowBuilder(builtin_windows())))
    assert whole.y is not None
    rng, true = np.random.default_rng(number), whole.y.numpy()
    logits = rng.normal(np.where(true, 3.0, -4.0), 2.0)
    graph = scored_graph(whole, whole.y.double())
    return Scored(event, replace(graph, scores=1 / (1 + np.exp(-logits))))


@pytest.fixture(scope="module")
def events() -> list[Scored]:
    return [scored(number) for number in range(2)]


@pytest.fixture(scope="module")
def tree() -> MergeTree:
    learnt = [scored(number) for number in range(2, 4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_tree_training, "STEPS", 200)
        quality = merge_tree_training.train_quality(
            [known_event(one.graph, hit_particles(one.event)) for one in learnt]
        )
    return MergeTree(quality, 0.5)


def row(cut: float, efficiency: float | None, fake: float | None) -> Row:
    return Row(cut, efficiency, fake, 0.0, 0.5, None, 0.1)


def test_tracks_are_judged_as_bigtrk_score_does(events: list[Scored], tmp_path: Path) -> None:
    found = judged(events, Components(0.9), 0.9)
    for one in events:
        write_event(one.event, tmp_path / "events")
        (tmp_path / "tracks").mkdir(exist_ok=True)
        tracks = Components(0.9)(one.graph, 3)
        hit_id = one.event.hits["hit_id"].astype(np.int64)
        write_tracks(tmp_path / "tracks", one.event.name, hit_id, tracks)
    record = score_files(tmp_path / "tracks", tmp_path / "events", CRITERIA)
    rows = {(each.style, each.mode): each for each in record.matching}
    strict = rows["ATLAS", "strict"]
    assert found.efficiency == strict.efficiency
    assert (found.fake, found.duplicate) == (strict.fake_rate, strict.duplicate_rate)
    assert found.two_way == rows["two_way", "strict"].efficiency
    assert found.trackml_score == record.trackml_score
    assert 0 < (found.efficiency or 0) < 1


def test_the_best_cut_and_that_of_equal_fakes_are_chosen() -> None:
    rows = [row(0.1, None, None), row(0.5, 0.9, 0.2), row(0.8, 0.85, 0.02), row(0.9, 0.8, 0.01)]
    assert best(rows).cut == 0.8
    assert best(rows[:1]).cut == 0.1
    for fake, cut in ((0.5, 0.5), (0.02, 0.8), (0.0199, 0.9)):
        found = at_equal_fakes(rows, fake)
        assert found is not None
        assert found.cut == cut
    assert at_equal_fakes(rows, 0.005) is None
    assert at_equal_fakes(rows, None) is None
    assert Gain(row(0.5, 0.9, 0.02), rows[2]).points == pytest.approx(0.05)
    assert Gain(row(0.5, 0.9, 0.02), None).points is None


def test_the_gain_is_over_components_with_no_more_fakes(
    events: list[Scored], tree: MergeTree
) -> None:
    found = gain(events, tree)
    assert found.merge_tree == replace(
        judged(events, tree, tree.threshold), seconds=found.merge_tree.seconds
    )
    assert found.components is not None
    assert (found.components.fake or 0) <= (found.merge_tree.fake or 0)
    mine = found.merge_tree.fake or 0
    others = [r for r in scan(events, Components, CUTS) if (r.fake or 0) <= mine]
    assert found.components.efficiency == max(r.efficiency or 0 for r in others)
    assert found.points == (found.merge_tree.efficiency or 0) - (found.components.efficiency or 0)


def test_all_builders_are_compared_and_shown(events: list[Scored], tree: MergeTree) -> None:
    found = {"simulated": compare(events, tree), "event1000": compare(events[:1], tree)}
    assert set(found["simulated"]) == set(stage_tables.BUILDERS)
    line, alone = summary(found), gain(events, tree)
    assert line["builder_gain"] == alone.points
    assert line["simulated"]["merge_tree"] == alone.merge_tree.efficiency
    assert "builder_gain_event1000" in line
    told = {of: {name: asdict(one) for name, one in some.items()} for of, some in found.items()}
    table = stage_tables.builders(json.loads(json.dumps({"compared": told})))
    assert {len(cells) for cells in table.rows} == {len(table.columns)}
    assert len(table.rows) == 2 * 2 * len(stage_tables.BUILDERS)


def test_pixel_events_hold_the_hits_of_three_volumes(tmp_path: Path) -> None:
    event = simulate_event(100, seed=1)
    write_event(event, tmp_path / "events")
    for _ in range(2):
        pixel_setting.write_pixel_events(tmp_path / "events", tmp_path / "pixels")
    read = read_event(tmp_path / "pixels", event.name)
    kept = np.isin(event.hits["volume_id"], (7, 8, 9))
    assert np.array_equal(read.hits["hit_id"], event.hits["hit_id"][kept])
    assert np.array_equal(hit_particles(read), hit_particles(event)[kept])
    assert read.cells is not None
    assert set(read.cells["hit_id"]) <= set(read.hits["hit_id"])


def double_majority(event: Event, tracks: list[int]) -> tuple[int, int, int, int]:
    """Counts particles to be found, those found, tracks and good ones, hit by hit."""
    particle = hit_particles(event).tolist()
    table = {name: column.tolist() for name, column in particle_kinematics(event).items()}
    hits_of = Counter(particle)
    wanted = {
        one
        for one, pt, eta in zip(table["particle_id"], table["pt"], table["eta"], strict=True)
        if pt >= 0.9 and abs(eta) < 4 and hits_of[one] >= 3
    }
    found, good, every = set(), 0, 0
    for track in set(tracks) - {-1}:
        inside = [p for p, t in zip(particle, tracks, strict=True) if t == track]
        most, shared = Counter(inside).most_common(1)[0]
        every += len(inside) >= 3
        match = most != 0 and 2 * shared > len(inside) and 2 * shared > hits_of[most]
        if match and len(inside) >= 3:
            good += 1
            found |= {most} & wanted
    return len(wanted), len(found), every, good


def test_pixels_are_judged_by_double_majority(events: list[Scored]) -> None:
    one = events[0]
    event = pixel_setting.pixel_event(one.event)
    chosen = np.isin(one.event.hits["hit_id"], event.hits["hit_id"])
    tracks = Components(0.5)(one.graph, 3)[chosen]
    hit_id = event.hits["hit_id"].astype(np.int64)
    listed = HitTracks(hit_id, tracks, "tracks", np.arange(len(tracks)))
    found = pixel_setting.metrics(event, listed)
    counted = (found.n_particles, found.n_reconstructed, found.n_tracks, found.n_matched)
    assert counted == double_majority(event, tracks.tolist())
    assert 0 < found.n_reconstructed < found.n_particles


def test_seeds_become_means_and_deviations_in_the_targets_table() -> None:
    seeds = [
        {
            **{group: dict.fromkeys(keys, value) for group, keys in GROUPS.items()},
            **dict.fromkeys(NUMBERS, value),
        }
        for value in (0.25, 0.75)
    ]
    found = of_seeds(seeds)
    assert found["simulated"]["efficiency"] == found["pixel"]["fake"] == 0.5
    assert found["deviation"]["builder_gain"] == pytest.approx(0.125**0.5)
    table = stage_tables.targets({"summary": found})
    assert table.rows[2][-1] == "50.0 % ± 35.4 %"
    seeds[1]["builder_gain"] = None
    assert of_seeds(seeds)["builder_gain"] is None
    del seeds[0]["event1000"]
    rows = stage_tables.targets({"summary": of_seeds(seeds[:1])}).rows
    assert rows[1][-1] == "not measured; not measured fakes"
    assert rows[2][-1] == "25.0 %"
