"""The page of an event: layers of hits, tracks, edges and sectors, and what is left out of them."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigtrk.records.run_folder import read_run
from bigtrk.reports.display import BREAK, EventPicture, Layer, display_report, layers
from bigtrk.reports.page import write_page
from tests.reports.events import LENGTH, straight_event
from tests.reports.pages import self_contained
from tests.reports.run_folders import run_writer


@pytest.fixture(scope="module")
def picture() -> EventPicture:
    return straight_event(40)


def layer(picture: EventPicture, name: str) -> Layer:
    [found] = [each for each in layers(picture) if each.name == name]
    return found


def test_hits_are_of_one_kind_each(picture: EventPicture) -> None:
    kinds = ("hits of particles found", "hits of particles lost")
    found, lost = (set(layer(picture, name).rows.tolist()) for name in kinds)
    assert found | lost == set(range(40 * LENGTH))
    assert lost == {hit for hit in range(40 * LENGTH) if hit // LENGTH % 10 == 0}
    assert "other hits" not in [each.name for each in layers(picture)]


def test_tracks_run_outwards_and_end(picture: EventPicture) -> None:
    lost = layer(picture, "true tracks, lost").rows
    assert lost.tolist() == [
        *(*range(10), BREAK),
        *(*range(100, 110), BREAK),
        *(*range(200, 210), BREAK),
        *range(300, 310),
    ]
    assert layer(picture, "fake tracks").drawn == 2
    assert layer(picture, "tracks").drawn == 38


def test_edges_are_sorted_by_score(picture: EventPicture) -> None:
    drawn = {each.name: each for each in layers(picture) if each.name.startswith("edges")}
    assert sum(each.total for each in drawn.values()) == picture.edge_index.shape[1]
    rows = drawn["edges of score 0.9 to 1"].rows.reshape(-1, 3)
    assert (rows[:, 2] == BREAK).all()
    pairs = {
        (a, b): s for (a, b), s in zip(picture.edge_index.T.tolist(), picture.scores, strict=True)
    }
    assert all(pairs[a, b] > 0.9 for a, b, _ in rows.tolist())
    assert not any(each.shown for each in drawn.values())


def test_sectors_have_cut_edges_and_halo(picture: EventPicture) -> None:
    assert picture.sector is not None
    ends = picture.sector[picture.edge_index]
    cut = picture.edge_index[:, ends[0] != ends[1]]
    assert layer(picture, "cut edges").total == cut.shape[1] > 0
    assert set(layer(picture, "halo hits").rows.tolist()) == set(cut.ravel().tolist())
    n = sum(layer(picture, f"sector {part}").total for part in (0, 1))
    assert n == len(picture.position)


def test_without_truth_hits_are_in_tracks_or_not(picture: EventPicture) -> None:
    track_id = picture.track_id.copy()
    track_id[:LENGTH] = -1
    bare = EventPicture(picture.position, picture.edge_index, picture.scores, track_id)
    assert layer(bare, "hits in tracks").total == 39 * LENGTH
    assert layer(bare, "other hits").total == LENGTH
    assert layer(bare, "tracks").drawn == 39


def test_large_events_are_thinned_and_say_so(tmp_path: Path) -> None:
    write_page(display_report("event1", straight_event(12_000), {}), tmp_path / "page.html")
    page = self_contained(tmp_path / "page.html")
    [note] = [text for text in page.texts if text.startswith("Drawn in part")]
    assert "hits of particles found: 45,000 of 108,000" in note
    assert "true tracks, found: 300 of 10,800" in note
    edges = page.figures[0].trace("cut edges")
    assert len(numbers(edges["x"])) == 3 * 2000


def numbers(array: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Reads an array as plotly's script does."""
    assert array["dtype"] == "f4"
    return np.frombuffer(base64.b64decode(array["bdata"]), np.float32)


def test_views_hold_the_hits(picture: EventPicture, tmp_path: Path) -> None:
    run = read_run(run_writer(tmp_path)("0001"))
    told = {"data": "/data/<graphs>", "tracks by": "walk"}
    write_page(display_report("event<1>", picture, told, run), tmp_path / "page.html")
    page = self_contained(tmp_path / "page.html")
    in_3d, across, along = page.figures
    names = [each.name for each in layers(picture)]
    assert [trace["name"] for trace in in_3d.data] == names
    rows = layer(picture, "hits of particles found").rows
    x, y, z = picture.position[rows].T
    found = in_3d.trace("hits of particles found")
    for axis, expected in (("x", z), ("y", x), ("z", y)):
        np.testing.assert_allclose(numbers(found[axis]), expected, rtol=1e-6)
    found = across.trace("hits of particles found")
    np.testing.assert_allclose(numbers(found["y"]), y, rtol=1e-6)
    found = along.trace("hits of particles found")
    np.testing.assert_allclose(numbers(found["y"]), np.hypot(x, y), rtol=1e-6)
    lost = across.trace("true tracks, lost")
    assert np.flatnonzero(np.isnan(numbers(lost["x"]))).tolist() == [10, 21, 32]
    told_words = " ".join(page.texts)
    assert "Lost: 4 of 40 particles to be found. Fake: 2 of 40 tracks." in told_words
    for word in ("event<1>", "/data/<graphs>", "0001", "torch 2.13.0", "2026-11-20"):
        assert word in told_words
