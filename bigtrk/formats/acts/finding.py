"""The classical baseline: ACTS's seeding, combinatorial Kalman filter and ambiguity resolution.

It takes any events of TrackML's detector, whatever made them, since it assigns hits to ACTS's
modules by position. Source: Acts' Examples/Scripts/Python/ckf_tracks.py for the order of steps.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from bigtrk.config import Settings, load_settings
from bigtrk.console import follow
from bigtrk.disk.files import read_json, write_json
from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.formats.acts.software import (
    FIELD,
    GenericDetector,
    Int64,
    claim,
    generic_detector,
    load_acts,
    space_point_step,
    tracks_of,
)
from bigtrk.graphs.storage.graph_folder import event_digest
from bigtrk.shipped import shipped
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.files import event_number, longest_track, tracks_path, write_tracks
from bigtrk.tracks.rules import PIXELS

DEFAULT = "configs/acts.yaml"
RECORD, DIGESTS = "baseline.json", "digests.json"  # the settings; digests of the events done
MOST = 1e6  # largest value of a setting; some of ACTS's refuse larger ones


class Seeding(Settings):
    """Settings of the seeds: triplets of hits in the pixels."""

    pt_min: float = Field(gt=0, le=MOST)
    """smallest pT of a particle that is looked for [GeV]"""
    impact_max: float = Field(gt=0, le=MOST)
    """largest distance from the beam [mm]"""
    z_max: float = Field(gt=0, le=MOST)
    """largest distance of a vertex from the origin along the beam [mm]"""
    r_max: float = Field(gt=0, le=MOST)
    """largest radius of a hit [mm]"""
    delta_r_min: float = Field(gt=0, le=MOST)
    """smallest step in radius between two hits [mm]"""
    delta_r_max: float = Field(gt=0, le=MOST)
    """largest step in radius between two hits [mm]"""
    seeds_per_middle: int = Field(ge=0, le=MOST)
    """most seeds that share their middle hit, besides the best"""
    sigma_scattering: float = Field(gt=0, le=MOST)
    """tolerance of multiple scattering, in standard deviations"""
    radiation_length: float = Field(gt=0, le=MOST)
    """material that a seed passes, in radiation lengths"""


class Finding(Settings):
    """Settings of the combinatorial Kalman filter, and the cuts on its tracks."""

    chi2_measurement: float = Field(gt=0, le=MOST)
    """a hit of larger chi2 is an outlier"""
    chi2_outlier: float = Field(gt=0, le=MOST)
    """a hit of larger chi2 is not on the track"""
    branches: int = Field(ge=1, le=MOST)
    """most hits that are followed on one surface"""
    pt_min: float = Field(ge=0, le=MOST)
    """smallest pT of a track [GeV]"""
    eta_max: float = Field(gt=0, le=MOST)
    """largest absolute eta of a track"""
    measurements_min: int = Field(ge=1, le=MOST)
    """shortest track, in hits"""
    holes_max: int = Field(ge=0, le=MOST)
    """most surfaces crossed without a hit"""
    outliers_max: int = Field(ge=0, le=MOST)
    """most outliers"""


class Ambiguity(Settings):
    """Settings of the greedy choice among tracks that share hits."""

    shared_hits_max: int = Field(ge=0, le=MOST)
    """most hits that a track may share"""
    measurements_min: int = Field(ge=1, le=MOST)
    """shortest track, in hits"""


class ChainSettings(Settings):
    """Settings of ACTS's chain from hits to tracks."""

    seeding: Seeding
    finding: Finding
    ambiguity: Ambiguity


def chain_settings(arguments: Sequence[str]) -> ChainSettings:
    """Reads settings from a YAML file in `arguments`, or the shipped one, and KEY=VALUE changes."""
    files = [Path(word) for word in arguments if "=" not in word]
    if len(files) > 1:
        raise InputError(f"{files[1]}: is a second file of settings; give only one")
    overrides = [word for word in arguments if "=" in word]
    return load_settings(ChainSettings, files[0] if files else shipped(DEFAULT), overrides)


def _seeding_steps(detector: GenericDetector, settings: ChainSettings) -> list[Any]:
    """Returns the ACTS algorithms that make seeds from hits in the pixels, with parameters."""
    acts, seeding = detector.acts, settings.seeding
    examples, quiet = acts.examples, acts.logging.Level.ERROR
    layers = [
        acts.GeometryIdentifier(volume=volume, layer=layer)
        for volume, numbers in PIXELS.items()
        for layer in numbers
    ]
    return [
        space_point_step(detector, layers),
        examples.GridTripletSeedingAlgorithm(
            level=quiet,
            inputSpacePoints="space_points",
            outputSeeds="seeds",
            bFieldInZ=FIELD * acts.UnitConstants.T,
            minPt=seeding.pt_min,
            impactMax=seeding.impact_max,
            cotThetaMax=math.sinh(settings.finding.eta_max),
            rMin=0.0,
            rMax=seeding.r_max,
            deltaRMin=seeding.delta_r_min,
            deltaRMinTop=seeding.delta_r_min,
            deltaRMinBottom=seeding.delta_r_min,
            deltaRMax=seeding.delta_r_max,
            deltaRMaxTop=seeding.delta_r_max,
            deltaRMaxBottom=seeding.delta_r_max,
            collisionRegionMin=-seeding.z_max,
            collisionRegionMax=seeding.z_max,
            zMin=-2000.0,
            zMax=2000.0,
            maxSeedsPerSpM=seeding.seeds_per_middle,
            sigmaScattering=seeding.sigma_scattering,
            radLengthPerSeed=seeding.radiation_length,
        ),
        examples.TrackParamsEstimationAlgorithm(
            level=quiet,
            inputSeeds="seeds",
            outputTrackParameters="estimates",
            outputSeeds="estimated_seeds",
            trackingGeometry=detector.geometry,
            magneticField=detector.field,
        ),
    ]


def find_tracks(event: Event, settings: ChainSettings, where: str) -> Int64:
    """Returns the track of each hit of an event, NO_TRACK where it is in none: [N].

    A shared hit goes to its longest track; of equally long ones, to that of the smallest chi2 per
    degree of freedom. InputError without ACTS, or if the event is not of TrackML's detector.
    """
    acts, detector = load_acts(), generic_detector()
    examples, quiet = acts.examples, acts.logging.Level.ERROR
    finding = settings.finding
    cuts = acts.TrackSelector.Config()
    cuts.ptMin, cuts.absEta = finding.pt_min, (0.0, finding.eta_max)
    cuts.minMeasurements, cuts.maxHoles = finding.measurements_min, finding.holes_max
    cuts.maxOutliers = finding.outliers_max
    everywhere = acts.GeometryIdentifier()
    chi2 = [finding.chi2_measurement], [finding.chi2_outlier]
    finder = examples.TrackFindingAlgorithm
    steps = [
        *_seeding_steps(detector, settings),
        finder(
            level=quiet,
            measurementSelectorCfg=acts.MeasurementSelector.Config(
                [(everywhere, ([], *chi2, [finding.branches]))]
            ),
            inputMeasurements="subset",
            inputInitialTrackParameters="estimates",
            inputSeeds="estimated_seeds",
            outputTracks="candidates",
            findTracks=finder.makeTrackFinderFunction(detector.geometry, detector.field, quiet),
            findTracksBrem=finder.makeBremTrackFinderFunction(
                detector.geometry, detector.field, quiet
            ),
            trackingGeometry=detector.geometry,
            magneticField=detector.field,
            trackSelectorCfg=cuts,
            twoWay=True,
            seedDeduplication=True,
            stayOnSeed=True,
        ),
        examples.GreedyAmbiguityResolutionAlgorithm(
            level=quiet,
            inputTracks="candidates",
            outputTracks="tracks",
            maximumSharedHits=settings.ambiguity.shared_hits_max,
            nMeasurementsMin=settings.ambiguity.measurements_min,
            maximumIterations=100_000,
        ),
    ]

    def read(tracks: Any) -> dict[str, Any]:
        return {"chi2": np.array(tracks.chi2) / np.maximum(np.array(tracks.ndf), 1)}

    hits, found = tracks_of(detector, event.hits, steps, read, where)
    hit, row, _ = longest_track(hits, np.argsort(np.argsort(found["chi2"])))
    track_id = np.full(len(event.hits["hit_id"]), NO_TRACK, np.int64)
    track_id[hit] = np.unique(row, return_inverse=True)[1]
    return track_id


def baseline_folder(events: Path, out: Path, settings: ChainSettings) -> dict[str, Any]:
    """Finds the tracks of each event in a folder or zip archive, and writes them to `out`. Tracks
    that `out` has of the same hits by the same settings are kept. Returns the number of tracks and
    the seconds of each newly done event. Raises InputError as `find_tracks`, or if an event cannot
    be read, or `out` holds something else.
    """
    names = find_events(events)
    for name in names:
        event_number(name)
    claim(out, RECORD, settings.model_dump())
    digests = read_json(out / DIGESTS) if (out / DIGESTS).exists() else {}
    found: dict[str, Any] = {}
    for name in follow(names, len(names), "finding tracks"):
        event = read_event(events, name, with_truth=False)
        digest = event_digest(event)
        if digests.get(name) == digest and tracks_path(out, name).exists():
            continue
        start = time.perf_counter()
        track_id = find_tracks(event, settings, f"{events}, {name}")
        seconds = {"finding": time.perf_counter() - start}
        write_tracks(out, name, event.hits["hit_id"].astype(np.int64), track_id)
        digests[name] = digest
        write_json(out / DIGESTS, digests)
        found[name] = {"tracks": int(track_id.max(initial=NO_TRACK)) + 1, "seconds": seconds}
    return found
