"""The windows file: what is written is read, what is wrong is named."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.geometry import ODD_LAYERS, TRACKML_LAYERS
from bigtrk.graphs.builders.windows import (
    builtin_windows,
    find_windows,
    read_windows,
    write_windows,
)

ROW = (
    "{inner: [8, 2], outer: [8, 4], edges: 3, "
    "phi_slope: 1e-3, dphi: 0.1, z0: [-9, 9], deta: [-1, 1]}"
)


def written(path: Path, *rows: str) -> Path:
    path.write_text("made: by hand\npairs:\n" + "".join(f"- {row}\n" for row in rows))
    return path


def hits_in(volumes: NDArray[np.int64]) -> Event:
    return Event("event000000007", {"volume_id": volumes})


def test_round_trip(tmp_path: Path) -> None:
    windows, path = builtin_windows("odd"), tmp_path / "windows.yaml"
    write_windows(path, windows)
    assert read_windows(path) == windows
    assert len(path.read_text().splitlines()) < len(windows.pairs) + 8, "one line per pair"


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([ROW, ROW], r"layer pair \(8, 2\) to \(8, 4\) appears twice"),
        ([], "pairs"),
        ([ROW.replace("dphi: 0.1", "dphi: 3.2")], r"pairs.0.dphi: .* less than 3.14"),
        ([ROW.replace("1e-3", ".nan")], r"pairs.0.phi_slope"),
        ([ROW.replace("[-9, 9]", "[9, -9]")], r"pairs.0.z0"),
    ],
)
def test_bad_windows_are_named(tmp_path: Path, rows: list[str], complaint: str) -> None:
    path = written(tmp_path / "bad.yaml", *rows)
    with pytest.raises(InputError, match=f"{path}.*{complaint}"):
        read_windows(path)


def test_shipped_windows_are_those_of_the_events_detector(tmp_path: Path) -> None:
    trackml, odd = builtin_windows("trackml"), builtin_windows("odd")
    layers = {"trackml": TRACKML_LAYERS, "odd": ODD_LAYERS}
    for name, windows in (("trackml", trackml), ("odd", odd)):
        volumes = layers[name].volume_id
        assert windows.volumes == set(volumes.tolist())
        assert (
            find_windows(None, hits_in(volumes)) == find_windows(name, hits_in(volumes)) == windows
        )
    # An event may lack hits anywhere, and TrackML's long strips have numbers of ODD's pixels.
    assert find_windows(None, hits_in(np.array([16, 17]))) == trackml
    assert find_windows(None, hits_in(np.array([], dtype=np.int64))) == trackml
    assert find_windows(None, hits_in(np.array([29]))) == odd
    own = written(tmp_path / "own.yaml", ROW)
    assert find_windows(own, hits_in(np.array([8, 13]))) == read_windows(own)


@pytest.mark.parametrize(
    ("given", "volumes", "complaint"),
    [
        (None, [8, 99, 77], "event000000007: has hits in volumes 77, 99, which the shipped"),
        ("odd", [8, 9], r"volumes 8, 9, which --windows odd does not cover; learn .*--learn"),
        ("nope", [8], r"nope: is neither a detector with shipped windows \(trackml, odd\) nor a"),
    ],
)
def test_events_of_another_detector_are_refused(
    given: str | None, volumes: list[int], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        find_windows(given, hits_in(np.array(volumes)))
