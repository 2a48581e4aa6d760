"""Compares fitted tracks with the truth: pulls and resolutions of parameters at the beam line.

Shapes: N hits, T tracks, J of them judged, P parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bigtrk.errors import damage_told
from bigtrk.events.event import NOISE, Event
from bigtrk.events.truth import hit_particles, of_particles
from bigtrk.records.evaluation import FitScore, ParameterBins, ParameterScore
from bigtrk.tracks.bins import ETA_EDGES, Floats
from bigtrk.tracks.matching import Ids, majority_particles

PARAMETERS = ("d0", "z0", "phi", "theta", "qop")  # mm, mm, rad, rad, 1/GeV
BORN_WITHIN = 0.1  # mm from the beam line; of other particles the truth gives no parameters there
PT_EDGES = (0.15, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # GeV
ONE_SIGMA = (15.865, 84.135)  # percentiles
FEW = 20  # with fewer tracks, no width is given


@dataclass(frozen=True)
class FitErrors:
    """The fits of J judged particles, all from the beam line: pt (GeV), eta [J], and for each of P
    parameters error and pull [J, P]. tracks, converged: numbers of all fits of existing tracks;
    `bigtrk fit --chi2-max` also writes the fits of tracks that it drops.
    """

    tracks: int
    converged: int
    pt: Floats
    eta: Floats
    error: Floats
    pull: Floats


def parameters_path(folder: Path, event: str) -> Path:
    """Returns the path of the file with an event's fits."""
    return folder / f"{event}-parameters.parquet"


def fit_errors(event: Event, track_id: Ids, file: Path) -> FitErrors:
    """Compares each fit in `file` with the particle that made most of the track's hits. track_id
    [N]: of the event's hits. Raises InputError if the file is damaged or the event has no truth.
    """
    names = [f"cov_{name}_{name}" for name in PARAMETERS]
    with damage_told(f"{file}: cannot be read", "fit the tracks again"):
        content = pq.ParquetFile(file)
        table = content.read(["track_id", "converged", *PARAMETERS, *names], use_threads=False)
        columns = {name: table[name].to_numpy() for name in table.column_names}
        sigma = np.sqrt(np.stack([columns[name] for name in names], axis=1))
    majority = majority_particles(track_id, hit_particles(event))
    tracks, first = np.unique(track_id, return_index=True)
    place = np.searchsorted(tracks, columns["track_id"]).clip(max=len(tracks) - 1)
    known = tracks[place] == columns["track_id"]
    particle = np.where(known, majority[first[place]], NOISE)
    px, py, pz, vx, vy, vz, q = (
        of_particles(event, particle, name) for name in ("px", "py", "pz", "vx", "vy", "vz", "q")
    )
    pt, phi = np.hypot(px, py), np.arctan2(py, px)
    true = {
        "d0": vy * np.cos(phi) - vx * np.sin(phi),
        "z0": vz,
        "phi": phi,
        "theta": np.arctan2(pt, pz),
        "qop": q / np.hypot(pt, pz),
    }
    error = np.stack([columns[name] - true[name] for name in PARAMETERS], axis=1)
    error[:, 2] = (error[:, 2] + np.pi) % (2 * np.pi) - np.pi
    converged = columns["converged"] & known
    chosen = converged & (np.hypot(vx, vy) < BORN_WITHIN)
    return FitErrors(
        int(known.sum()),
        int(converged.sum()),
        pt[chosen],
        np.arcsinh(pz / pt)[chosen],
        error[chosen],
        (error / sigma)[chosen],
    )


def score_fits(events: Sequence[FitErrors]) -> FitScore | None:
    """Summarises the fits of all events; None if there are no events."""
    if not events:
        return None
    pt, eta, error, pull = (
        np.concatenate([getattr(one, name) for one in events])
        for name in ("pt", "eta", "error", "pull")
    )
    axes = {"pt": (pt, PT_EDGES), "eta": (eta, ETA_EDGES)}
    return FitScore(
        tracks=sum(one.tracks for one in events),
        converged=sum(one.converged for one in events),
        judged=len(pt),
        parameters=tuple(
            ParameterScore(
                parameter=name,
                pull_median=float(np.median(pull[:, i])) if len(pt) >= FEW else None,
                pull_width=_width(pull[:, i]),
                resolution=_width(error[:, i]),
                bins={
                    axis: ParameterBins(
                        edges=edges,
                        pull_width=_binned(pull[:, i], values, edges),
                        resolution=_binned(error[:, i], values, edges),
                    )
                    for axis, (values, edges) in axes.items()
                },
            )
            for i, name in enumerate(PARAMETERS)
        ),
    )


def _binned(found: Floats, values: Floats, edges: Sequence[float]) -> tuple[float | None, ...]:
    bins = [(values >= low) & (values < high) for low, high in pairwise(edges)]
    return tuple(_width(found[chosen]) for chosen in bins)


def _width(values: Floats) -> float | None:
    """Returns half the width of the central 68.27 % of values, which outliers do not change."""
    if len(values) < FEW:
        return None
    low, high = np.percentile(values, ONE_SIGMA)
    return float(high - low) / 2
