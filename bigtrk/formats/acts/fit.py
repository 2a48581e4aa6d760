"""Fits tracks of any origin by ACTS's Kalman filter: parameters at the beam line, with covariance.

Parameters are ACTS's bound ones at the perigee of the origin: d0 and z0 (mm), phi and theta (rad),
q/p (1/GeV). Shapes: N hits, T tracks.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import combinations_with_replacement, pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bigtrk.console import follow, warn_once
from bigtrk.disk.files import disk_errors, write_atomically
from bigtrk.errors import InputError, number_of
from bigtrk.events.event import Event
from bigtrk.events.reader import read_event
from bigtrk.events.trackml import write_table
from bigtrk.formats.acts.software import (
    PITCHES,
    Float64,
    GenericDetector,
    Int64,
    generic_detector,
    load_acts,
    python_step,
    space_point_step,
    tracks_of,
)
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.files import events_by_number, open_tracks, write_tracks
from bigtrk.tracks.fits import PARAMETERS, parameters_path

HITS_MIN = 3  # that determine a helix


@dataclass(frozen=True, eq=False)
class FittedTracks:
    """The fits of an event's tracks, ascending by track_id [T].

    parameters [T, 5] and covariance [T, 5, 5] as of `PARAMETERS`, chi2 [T], ndf, measurements,
    holes and outliers [T] int64; NaN and 0 if the fit did not converge. converged [T] bool.
    """

    track_id: Int64
    converged: np.ndarray[Any, np.dtype[np.bool_]]
    parameters: Float64
    covariance: Float64
    chi2: Float64
    ndf: Int64
    measurements: Int64
    holes: Int64
    outliers: Int64

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """Returns the columns of a table of fits; cov_d0_d0, cov_d0_z0, ...: upper triangle."""
        upper = combinations_with_replacement(enumerate(PARAMETERS), 2)
        counts = ("ndf", "measurements", "holes", "outliers")
        return {
            "track_id": self.track_id,
            "converged": self.converged,
            **dict(zip(PARAMETERS, self.parameters.T, strict=True)),
            **{f"cov_{one}_{two}": self.covariance[:, i, j] for (i, one), (j, two) in upper},
            "chi2": self.chi2,
            **{name: getattr(self, name) for name in counts},
        }

    def acts_columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """Returns the converged fits in the columns that ACTS's CsvTrackParameterReader reads: qop
        in 1/GeV, angles in rad.
        """
        found: dict[str, np.ndarray[Any, Any]] = {
            "trackId": self.track_id,
            **dict(zip(PARAMETERS, self.parameters.T, strict=True)),
            **{f"var_{name}": self.covariance[:, i, i] for i, name in enumerate(PARAMETERS)},
        }
        for (i, one), (j, two) in permutations(enumerate(PARAMETERS), 2):
            found[f"cov_{one}{two}"] = self.covariance[:, i, j]
        return {name: values[self.converged] for name, values in found.items()}

    def passing(self, chi2_max: float | None) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Marks converged fits of chi2 per degree of freedom up to `chi2_max` (None: any): [T]."""
        if chi2_max is None:
            return self.converged
        return self.converged & (self.chi2 <= chi2_max * np.maximum(self.ndf, 1))


def _fitting_steps(detector: GenericDetector, hits: Sequence[Sequence[int]]) -> list[Any]:
    """Returns the ACTS algorithms that fit tracks (lists of measurements) by Kalman filter."""
    acts = detector.acts
    examples, quiet = acts.examples, acts.logging.Level.FATAL
    everywhere = [acts.GeometryIdentifier(volume=volume) for volume in PITCHES]
    kind = examples.ProtoTrackContainer
    proto_tracks = kind([examples.ProtoTrack(one) for one in hits])
    return [
        python_step(acts, lambda _: {"proto_tracks": proto_tracks}, {}, {"proto_tracks": kind}),
        space_point_step(detector, everywhere),
        examples.ProtoTracksToParameters(
            level=quiet,
            geometry=detector.geometry,
            magneticField=detector.field,
            inputProtoTracks="proto_tracks",
            inputSpacePoints="space_points",
            outputProtoTracks="estimated_proto_tracks",
            outputParameters="estimates",
            outputSeeds="estimated_seeds",
            # mm. By ACTS's 10 mm, 200 of 3,007 tracks of event 1000 had no fit: all were forward.
            minTransverseDistance=5.0,
        ),
        examples.TrackFittingAlgorithm(
            level=quiet,
            inputMeasurements="measurements",
            inputProtoTracks="estimated_proto_tracks",
            inputInitialTrackParameters="estimates",
            inputClusters="",
            outputTracks="tracks",
            fit=examples.makeKalmanFitterFunction(
                detector.geometry,
                detector.field,
                multipleScattering=True,
                energyLoss=True,
                # Smoothing instead would ignore the material before the first hit: pulls of 3 to 4.
                reverseFilteringMomThreshold=1e6,
                reverseFilteringCovarianceScaling=100.0,
                freeToBoundCorrection=examples.FreeToBoundCorrection(False),
                chi2Cut=float("inf"),
                useJosephFormulation=False,
                level=quiet,
            ),
            calibrator=examples.makePassThroughCalibrator(),
            referenceSurface=acts.Surface.createPerigee(acts.Vector3(0, 0, 0)),
        ),
    ]


def fit_tracks(event: Event, track_id: Int64, where: str) -> FittedTracks:
    """Fits the tracks of an event. track_id [N]: the track of each hit, NO_TRACK for a hit in none.

    Hits are taken in the order of their distance from the origin. A track of fewer than three hits,
    or one whose fit fails, counts as not converged. InputError as in `find_tracks`.
    """
    detector, in_track = generic_detector(), track_id != NO_TRACK
    # Hits in no track would only take time: half of that of the whole fit.
    used, track_id = {k: v[in_track] for k, v in event.hits.items()}, track_id[in_track]
    distance = np.sqrt(sum(used[axis].astype(np.float64) ** 2 for axis in "xyz"))
    order = np.lexsort((distance, track_id))
    ids, first = np.unique(track_id[order], return_index=True)
    bounds = np.append(first, len(order)).tolist()
    hits = [order[begin:end].tolist() for begin, end in pairwise(bounds)]

    def read(tracks: Any) -> dict[str, Any]:
        names = ("parameters", "covariance", "chi2", "ndf", "nMeasurements", "nHoles", "nOutliers")
        # A failed attempt leaves a track without parameters.
        kept = np.array([track.hasReferenceSurface for track in tracks], bool)
        return {name: np.array(getattr(tracks, name))[kept] for name in names}

    steps = _fitting_steps(detector, [one for one in hits if len(one) >= HITS_MIN])
    listed, fitted = tracks_of(detector, used, steps, read, where)
    first_hits = np.array([one[0] for one in listed], np.int64)
    row = np.searchsorted(ids, track_id[first_hits])
    return _laid_out(ids, row, fitted)


def _laid_out(ids: Int64, row: Int64, fitted: dict[str, Any]) -> FittedTracks:
    """Makes FittedTracks of all tracks `ids` from ACTS's fits; row: each fit's index in `ids`."""

    def spread(values: np.ndarray[Any, Any], empty: float, kind: type) -> np.ndarray[Any, Any]:
        found = np.full((len(ids), *values.shape[1:]), empty, kind)
        found[row] = values
        return found

    parameters = fitted["parameters"][:, :5]
    finite = np.isfinite(parameters).all(axis=1)
    row, fitted = row[finite], {name: column[finite] for name, column in fitted.items()}
    return FittedTracks(
        ids,
        spread(np.ones(len(row)), False, bool),
        spread(parameters[finite], np.nan, float),
        spread(fitted["covariance"][:, :5, :5], np.nan, float),
        spread(fitted["chi2"], np.nan, float),
        *(spread(fitted[name], 0, int) for name in ("ndf", "nMeasurements", "nHoles", "nOutliers")),
    )


@dataclass(frozen=True)
class FitCounts:
    """Counts over all events, as `--json` prints them. tracks: all; converged: fits that converged;
    kept: converged fits within the cut on chi2.
    """

    events: int
    tracks: int
    converged: int
    kept: int

    def __add__(self, other: "FitCounts") -> "FitCounts":
        return FitCounts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        cut = f", {self.kept:,} of them within the cut," if self.kept < self.converged else ""
        whole, where = number_of(self.tracks, "track"), number_of(self.events, "event")
        return f"fits of {self.converged:,} of {whole}{cut} in {where}"


def fit_folder(
    tracks: Path,
    events: Path,
    out: Path,
    chi2_max: float | None = None,
    csv: bool = False,
    share: tuple[int, int] = (0, 1),
) -> FitCounts:
    """Fits the tracks in `tracks` (see `open_tracks`), event by event; writes to `out` the fits, as
    EVENT-parameters.parquet, each atomically, and tracks; with `chi2_max`, only the tracks whose
    chi2 per degree of freedom is at most this. csv: also writes ACTS's table of parameters. share:
    (i, n) fits every nth event, from the ith on. Raises InputError as `fit_tracks`, or if tracks
    are of an event or of hits that `events` lacks.
    """
    source = open_tracks(tracks)
    names = events_by_number(source, events)
    load_acts()
    if out.resolve() == tracks.resolve() and chi2_max is not None:
        raise InputError(f"{out}: holds the tracks to fit; name another folder for the fits")
    with disk_errors():
        out.mkdir(parents=True, exist_ok=True)
    counted = FitCounts(0, 0, 0, 0)
    mine = [*source.events][share[0] :: share[1]]
    for number in follow(mine, len(mine), "fitting") if share[0] == 0 else mine:
        name = names[number]
        event = read_event(events, name, with_truth=False)
        hit_id = event.hits["hit_id"].astype(np.int64, copy=False)
        track_id = source.read(number).of_hits(hit_id)
        fitted = fit_tracks(event, track_id, f"{events}, {name}")
        table = pa.table(fitted.columns())
        write_atomically(parameters_path(out, name), partial(pq.write_table, table))
        if csv:
            write_table(fitted.acts_columns(), out / f"{name}-track_parameters.csv", compress=False)
        kept = fitted.passing(chi2_max)
        if out.resolve() != tracks.resolve():
            chosen = track_id
            if chi2_max is not None:
                chosen = np.where(np.isin(track_id, fitted.track_id[kept]), track_id, NO_TRACK)
            write_tracks(out, name, hit_id, chosen)
        one = FitCounts(1, len(kept), int(fitted.converged.sum()), int(kept.sum()))
        counted += one
        if short := one.tracks - one.converged:
            warn_once(
                "tracks without a fit",
                f"{name}: {short:,} of {one.tracks:,} tracks have no fit, as they have hits in "
                f"fewer than 3 layers or the fit did not converge; they are kept and marked",
            )
    return counted
