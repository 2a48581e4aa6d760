"""Fits against the truth, on fits made by hand."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigtrk.errors import InputError
from bigtrk.events.event import Columns, Event
from bigtrk.tracks.fits import PARAMETERS, fit_errors, parameters_path, score_fits
from bigtrk.tracks.matching import Ids

SIGMA = np.array([0.1, 0.5, 0.01, 0.002, 0.03])
P, WIDE = 4000, 2.0  # particles, and how much wider than their errors fits are


def made(folder: Path) -> tuple[Event, Ids, Path]:
    """Particles of three hits and their fits; each fourth is born far out, each fifth unfitted."""
    random = np.random.default_rng(0)
    phi, theta = random.uniform(-np.pi, np.pi, P), random.uniform(0.3, 2.8, P)
    pt, q = random.uniform(0.5, 5.0, P), random.choice([-1.0, 1.0], P)
    out = np.where(np.arange(P) % 4 == 3, 50.0, 0.05)  # mm from the beam line
    vx, vy, vz = -out * np.sin(phi), out * np.cos(phi), random.normal(0, 50, P)
    ids = np.arange(1, P + 1)
    particles: Columns = {"particle_id": ids, "vx": vx, "vy": vy, "vz": vz, "q": q}
    particles |= {"px": pt * np.cos(phi), "py": pt * np.sin(phi), "pz": pt / np.tan(theta)}
    hit_id = np.arange(3 * P)
    hits: Columns = {"hit_id": hit_id} | {name: np.ones(3 * P) for name in "xyz"}
    truth: Columns = {"hit_id": hit_id, "particle_id": np.repeat(ids, 3)}
    true = np.stack([out, vz, phi, theta, q * np.sin(theta) / pt], axis=1)
    fitted = true + WIDE * SIGMA * random.normal(size=(P, 5))
    fitted[:, 2] = (fitted[:, 2] + np.pi) % (2 * np.pi) - np.pi
    converged = np.arange(P) % 5 != 4
    fitted[~converged] = np.nan
    columns = {"track_id": np.arange(P), "converged": converged}
    columns |= {name: fitted[:, i] for i, name in enumerate(PARAMETERS)}
    columns |= {f"cov_{n}_{n}": np.full(P, SIGMA[i] ** 2) for i, n in enumerate(PARAMETERS)}
    file = parameters_path(folder, "event000000001")
    pq.write_table(pa.table(columns), file)
    return Event("event000000001", hits, None, particles, truth), np.repeat(np.arange(P), 3), file


def test_widths_are_those_that_were_made(tmp_path: Path) -> None:
    event, track_id, file = made(tmp_path)
    found = score_fits([fit_errors(event, track_id, file)])
    assert found
    assert (found.tracks, found.converged, found.judged) == (P, P * 4 // 5, P * 3 // 5)
    fewer = fit_errors(event, np.where(track_id < 10, track_id, -1), file)
    assert (fewer.tracks, fewer.converged, len(fewer.pt)) == (10, 8, 6)
    for one, sigma in zip(found.parameters, SIGMA, strict=True):
        assert one.pull_median == pytest.approx(0, abs=0.15)
        assert one.pull_width == pytest.approx(WIDE, rel=0.1)
        assert one.resolution == pytest.approx(WIDE * sigma, rel=0.1)
        of_pt = one.bins["pt"].pull_width
        assert of_pt[-1] is None  # nobody is above 8 GeV
        assert of_pt[3] == pytest.approx(WIDE, rel=0.2)


def test_damaged_fits_are_named(tmp_path: Path) -> None:
    event, track_id, file = made(tmp_path)
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"000001-parameters.parquet.*fit the tracks again"):
        fit_errors(event, track_id, file)
