"""Tests what is compared of simulated events and a real one, and that they are alike."""

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import least_squares

from bigtrk.events.event import Event
from bigtrk.events.geometry import TRACKML_LAYERS
from bigtrk.events.reader import read_event
from bigtrk.events.simulation.simulate import simulate_event
from scripts.docs.tables.event_tables import RATES, SIDES, simulator
from scripts.physics.simulator_residuals import (
    WINDOWS,
    barrel_tracks,
    circle_residuals,
    measured,
    residuals,
    summary,
)

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return [simulate_event(10_000, seed=3, event_id=number) for number in range(2)]


def test_residuals_are_those_of_the_best_circle() -> None:
    """Against scipy's least squares of the distances themselves."""
    rng = np.random.default_rng(0)
    track = np.repeat(np.arange(20), rng.integers(7, 12, 20))
    radius, start = rng.uniform(800, 4000, 20)[track], rng.uniform(-3, 3, 20)[track]
    angle = start + rng.uniform(0, 0.3, len(track))
    x = radius * np.cos(angle) + rng.normal(size=len(track)) * 0.1 - 300
    y = radius * np.sin(angle) + rng.normal(size=len(track)) * 0.1
    found = circle_residuals(x, y, track)
    for number in range(20):
        mine = track == number

        def distance(p: Floats, mine: Floats = mine) -> Floats:
            off: Floats = np.hypot(x[mine] - p[0], y[mine] - p[1]) - p[2]
            return off

        best = least_squares(distance, [-300, 0, radius[mine][0]], x_scale=100.0).fun
        assert np.sqrt((found[mine] ** 2).sum()) == pytest.approx(
            np.sqrt((best**2).sum()), rel=0.02
        )


def test_barrel_tracks_against_a_loop(events: list[Event]) -> None:
    event = events[0]
    assert event.truth is not None
    assert event.particles is not None
    radius = np.hypot(event.hits["x"].astype(float), event.hits["y"].astype(float))
    barrel = np.isin(event.hits["volume_id"], (8, 13, 17))
    expected = []
    for row, particle in enumerate(event.particles["particle_id"]):
        mine = radius[barrel & (event.truth["particle_id"] == particle)]
        if len(mine) >= 7 and mine.min() < 80 and mine.max() > 800:
            px, py = (float(event.particles[name][row]) for name in ("px", "py"))
            expected.append(np.hypot(px, py))
        if len(expected) == 30:
            break
    assert barrel_tracks(event).pt[:30] == pytest.approx(expected)


def test_simulated_tracks_are_as_rough_as_real_ones(events: list[Event], testdata: Path) -> None:
    """The median residual within 20 % in each range of pT."""
    real = residuals([read_event(testdata / "data" / "trackml_event1000")])
    for pt, row in residuals(events).items():
        assert row["tracks"] > 50
        assert 0.8 < row["median"] / real[pt]["median"] < 1.2, pt


def test_all_is_measured_and_shown(events: list[Event]) -> None:
    found = measured(events[:1])
    assert found["occupancy"]["all"] == len(events[0].hits["x"])
    assert set(found["occupancy"]) == {"all", *map(str, TRACKML_LAYERS.volume_id)}
    assert sum(found["occupancy"].values()) == 2 * len(events[0].hits["x"])
    assert set(RATES) < set(WINDOWS) == set(found["windows"])
    compared = dict.fromkeys(SIDES, found)
    assert summary(compared)["simulated"]["hits"] == len(events[0].hits["x"])
    table = simulator({"compared": compared})
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert len(table.rows) == 4 + 10 + 1 + 4
