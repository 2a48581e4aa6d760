"""Folders of simulated events: nothing in them is ever overwritten."""

from dataclasses import replace
from pathlib import Path

import pytest

from bigtrk.errors import InputError
from bigtrk.events.detectors import write_detectors
from bigtrk.events.geometry import TRACKML_LAYERS
from bigtrk.events.reader import find_events
from bigtrk.events.simulation.production import simulate_folder


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Inode and bytes of every file of `folder` but the detectors, by name."""
    return {
        path.name: (path.stat().st_ino, path.read_bytes())
        for path in folder.iterdir()
        if not path.name.startswith("detectors")
    }


def test_events_are_added_and_those_there_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    simulate_folder(out, range(2), 20, 0, None)
    before = content(out)
    (out / "event000000001-hits.csv.gz").unlink()  # as if stopped before its last file
    simulate_folder(out, range(3), 20, 0, None)
    after = content(out)
    assert find_events(out) == [f"event{i:09d}" for i in range(3)]
    for name, (inode, data) in before.items():
        assert after[name][1] == data
        assert after[name][0] == inode or "event000000001" in name


def test_events_without_truth_have_the_same_hits(tmp_path: Path) -> None:
    simulate_folder(tmp_path / "hits", range(3, 5), 20, 0, None, with_truth=False)
    simulate_folder(tmp_path / "all", range(3, 5), 20, 0, None)
    alone, whole = content(tmp_path / "hits"), content(tmp_path / "all")
    measured = {f"event{i:09d}-{table}.csv.gz" for i in (3, 4) for table in ("hits", "cells")}
    assert {name for name in alone if name.startswith("event")} == measured
    assert {name: alone[name][1] for name in measured} == {n: whole[n][1] for n in measured}
    with pytest.raises(InputError, match="its files were made with other options"):
        simulate_folder(tmp_path / "all", range(5, 6), 20, 0, None, with_truth=False)
    with pytest.raises(InputError, match="and --no-truth to add events"):
        simulate_folder(tmp_path / "hits", range(5, 6), 20, 0, None)


def test_foreign_folders_and_other_simulations_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty; name a new folder, or an empty one"):
        simulate_folder(tmp_path, range(1), 20, 0, None)
    with pytest.raises(InputError, match="is a file"):
        simulate_folder(tmp_path / "notes.txt", range(1), 20, 0, None)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    out, other = tmp_path / "out", tmp_path / "other"
    simulate_folder(out, range(1), 20, 0, None)
    before = content(out)
    write_detectors(other, replace(TRACKML_LAYERS, high=TRACKML_LAYERS.high + 1))
    for particles, seed, detectors in ((21, 0, None), (20, 1, None), (20, 0, other)):
        with pytest.raises(InputError, match="its files were made with other options"):
            simulate_folder(out, range(2), particles, seed, detectors)
    assert content(out) == before
    for particles, seed, event in ((0, 1, 1), (5, -1, 1), (5, 1, -1)):
        with pytest.raises(InputError, match="give at least 1 particle and no negative numbers"):
            simulate_folder(tmp_path / "none", range(event, event + 1), particles, seed, None)
    assert not (tmp_path / "none").exists()
