"""Runs ACTS: its model of TrackML's detector, and chains of its algorithms on bigtrk's events.

The package `pyacts` is an extra, and bigtrk works without it. ACTS's units are bigtrk's: mm, GeV,
rad. Shapes: N hits, S sensitive surfaces.

Source: ACTS 48, `acts.examples`; numbers of the detector's resolution by the TrackML challenge.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigtrk.console import warn_once
from bigtrk.disk.files import claim_folder
from bigtrk.errors import InputError, one_line
from bigtrk.events.event import Columns

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

# Pitches of cells by volume, in the modules' first and second coordinate (mm): pixels, short strips
# and long strips.
PITCHES = (
    dict.fromkeys((7, 8, 9), (0.05, 0.05))
    | dict.fromkeys((12, 13, 14), (0.08, 1.2))
    | dict.fromkeys((16, 17, 18), (0.12, 10.8))
)
FIELD = 2.0  # T, along z
CANDIDATES = 12  # nearest modules among which a hit's module is chosen
OFF_MODULE = 0.1  # mm; a warning counts hits farther than this from every module


def load_acts() -> Any:
    """Imports and returns the package `acts` with examples; InputError if it cannot be loaded."""
    try:
        import acts
        import acts.examples
        import acts.examples.json
    except (ImportError, OSError) as error:
        raise InputError(
            f"ACTS is needed, but cannot be loaded ({error}); pip install 'bigtrk[acts]', on "
            f"Linux with glibc 2.34 or later (Debian 12, RHEL 9)"
        ) from None
    return acts


def claim(out: Path, record: str, options: Mapping[str, Any]) -> None:
    """Claims folder `out` for files made by this ACTS version with `options` (`claim_folder`)."""
    version = list(load_acts().__version__)
    parameters = json.loads(json.dumps({"acts": version, **options}, default=str))
    claim_folder(out, record, parameters)


@lru_cache(maxsize=1)
def generic_detector() -> "GenericDetector":
    """Returns ACTS's model of TrackML's detector, which is built only once."""
    return GenericDetector(load_acts())


class GenericDetector:
    """TrackML's detector in ACTS, in a field of 2 T along z."""

    def __init__(self, acts: Any) -> None:
        config = acts.examples.GenericDetector.Config()
        quiet = acts.logging.Level.WARNING
        config.logLevel = config.surfaceLogLevel = config.layerLogLevel = quiet
        config.volumeLogLevel = quiet
        self.acts = acts
        self._detector = acts.examples.GenericDetector(config)
        self.geometry = self._detector.trackingGeometry()
        self.field = acts.ConstantBField(acts.Vector3(0, 0, FIELD * acts.UnitConstants.T))
        surfaces = self.geometry.geoIdSurfaceMap()
        self.ids = sorted((i for i in surfaces if i.sensitive), key=lambda i: i.value)
        self._surfaces = [surfaces[i] for i in self.ids]
        self._volume = np.array([i.volume for i in self.ids])  # [S]

    @cached_property
    def _frames(self) -> tuple[Float64, Float64, Float64]:
        """Each surface's centre [S, 3], axes as columns [S, 3, 3], and half lengths [S, 3]: of the
        first coordinate at the lower and the upper end of the second, and of the second.
        """
        context = self.acts.GeometryContext.dangerouslyDefaultConstruct()
        centre, axes = np.empty((len(self.ids), 3)), np.empty((len(self.ids), 3, 3))
        half = np.empty((len(self.ids), 3))
        for row, surface in enumerate(self._surfaces):
            transform = surface.localToGlobalTransform(context)
            centre[row] = [transform.translation[axis] for axis in range(3)]
            axes[row] = [[transform.rotation[i, j] for j in range(3)] for i in range(3)]
            values = surface.bounds.values()
            # A rectangle has its lower left and upper right corner, a trapezoid its half lengths.
            is_rectangle = surface.bounds.type == self.acts.SurfaceBoundsType.Rectangle
            half[row] = (values[2], values[2], values[3]) if is_rectangle else values[:3]
        return centre, axes, half

    def layer_sizes(self) -> dict[tuple[int, int], tuple[float, float]]:
        """Returns each layer's largest half lengths of a module (mm): (volume, layer) -> (u, v)."""
        half = self._frames[2]
        sizes: dict[tuple[int, int], tuple[float, float]] = {}
        for row, identifier in enumerate(self.ids):
            key = (identifier.volume, identifier.layer)
            u, v = sizes.get(key, (0.0, 0.0))
            sizes[key] = (max(u, *half[row, :2].tolist()), max(v, float(half[row, 2])))
        return sizes

    def measure(self, hits: Columns, where: str) -> tuple[Int64, Float64, Float64]:
        """Assigns each hit to a module by its position, since TrackML's module ids in end caps are
        not ACTS's: index in `ids` [N], local position [N, 2] (mm), its variance [N, 2] (mm^2).
        """
        from scipy.spatial import cKDTree  # its loading takes a while

        volume = hits["volume_id"].astype(np.int64)
        if len(bad := np.flatnonzero(~np.isin(volume, list(PITCHES)))):
            raise InputError(
                f"{where}: hit {hits['hit_id'][bad[0]]} is in volume {volume[bad[0]]}, which "
                f"TrackML's detector does not have; give events of TrackML's detector"
            )
        position = np.stack([hits[axis].astype(np.float64) for axis in "xyz"], axis=1)
        centre, axes, half = self._frames
        surface, distance = np.empty(len(position), np.int64), np.empty(len(position))
        local = np.empty((len(position), 2))
        for number in np.unique(volume):
            rows, modules = np.flatnonzero(volume == number), np.flatnonzero(self._volume == number)
            _, near = cKDTree(centre[modules]).query(position[rows], CANDIDATES)
            near = modules[near]  # [n, CANDIDATES]
            offset = position[rows, None] - centre[near]
            u, v, w = np.moveaxis(np.einsum("ncij,nci->ncj", axes[near], offset), -1, 0)
            at_lower, at_upper, half_v = np.moveaxis(half[near], -1, 0)
            share = np.clip((v + half_v) / (2 * half_v), 0, 1)
            half_u = at_lower * (1 - share) + at_upper * share
            away = np.abs(w) + np.maximum(np.abs(u) - half_u, 0) + np.maximum(np.abs(v) - half_v, 0)
            best = away.argmin(axis=1)
            each = np.arange(len(rows))
            surface[rows], distance[rows] = near[each, best], away[each, best]
            local[rows] = np.stack([u[each, best], v[each, best]], axis=1)
        if n_off := int((distance > OFF_MODULE).sum()):
            warn_once(
                "hits off their module",
                f"{where}: {n_off:,} of {len(distance):,} hits are more than {OFF_MODULE} mm away "
                f"from every module of ACTS's detector (the farthest {distance.max():.2g} mm); "
                f"they are moved to the nearest module",
            )
        pitch = np.array([PITCHES[number] for number in volume])
        return surface, local, pitch**2 / 12


def python_step(
    acts: Any,
    run: Callable[[dict[str, Any]], dict[str, Any]],
    reads: Mapping[str, Any],
    writes: Mapping[str, Any],
) -> Any:
    """Makes an ACTS algorithm that calls `run` with the objects it reads, by name, and stores the
    objects that `run` returns. reads, writes: the class of each object, by its name in an event.
    """
    examples = acts.examples

    class Step(examples.IAlgorithm):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__("bigtrk", acts.logging.Level.WARNING)
            # ACTS keeps no reference to handles.
            self.read = {n: examples.ReadDataHandle(self, kind, n) for n, kind in reads.items()}
            self.write = {n: examples.WriteDataHandle(self, kind, n) for n, kind in writes.items()}
            for name, handle in (self.read | self.write).items():
                handle.initialize(name)

        def execute(self, context: Any) -> Any:
            found = {name: handle(context.eventStore) for name, handle in self.read.items()}
            for name, value in run(found).items():
                self.write[name](context, value)
            return examples.ProcessCode.SUCCESS

    return Step()


def _measurement_steps(detector: GenericDetector, hits: Columns, where: str) -> list[Any]:
    """Returns the algorithms that store an event's hits as "measurements", and as its "subset"."""
    acts, examples = detector.acts, detector.acts.examples
    container, all_of = examples.MeasurementContainer(), range(len(hits["hit_id"]))
    rows = (column.tolist() for column in detector.measure(hits, where))
    for surface, local, variance in zip(*rows, strict=True):
        container.emplaceMeasurement(detector.ids[surface], (0, 1), local, variance)
    kind = examples.MeasurementContainer
    return [
        python_step(acts, lambda _: {"measurements": container}, {}, {"measurements": kind}),
        python_step(
            acts,
            lambda found: {"subset": examples.MeasurementSubset(found["measurements"], all_of)},
            {"measurements": kind},
            {"subset": examples.MeasurementSubset},
        ),
    ]


def space_point_step(detector: GenericDetector, selection: Sequence[Any]) -> Any:
    """Returns the algorithm that makes "space_points" from the subset's hits on `selection`."""
    return detector.acts.examples.SpacePointMaker(
        level=detector.acts.logging.Level.ERROR,
        inputMeasurements="subset",
        outputSpacePoints="space_points",
        trackingGeometry=detector.geometry,
        geometrySelection=selection,
        stripGeometrySelection=[],
    )


def tracks_of(
    detector: GenericDetector,
    hits: Columns,
    algorithms: Sequence[Any],
    read: Callable[[Any], dict[str, Any]],
    where: str,
) -> tuple[list[list[int]], dict[str, Any]]:
    """Runs algorithms that make "tracks" of an event's `hits` [N]. Returns the hits of each track,
    as rows of `hits`, and what `read` returns of the tracks, which ACTS keeps only while it runs.
    InputError if ACTS fails.
    """
    acts, examples = detector.acts, detector.acts.examples
    quiet, found = acts.logging.Level.ERROR, list[tuple[list[list[int]], dict[str, Any]]]()

    def keep(made: dict[str, Any]) -> dict[str, Any]:
        found.append(([list(track) for track in made["listed"]], read(made["tracks"])))
        return {}

    kinds = {"listed": examples.ProtoTrackContainer, "tracks": examples.ConstTrackContainer}
    sequencer = examples.Sequencer(events=1, numThreads=1, logLevel=quiet, trackFpes=False)
    for algorithm in (
        *_measurement_steps(detector, hits, where),
        *algorithms,
        examples.TracksToTrajectories(
            level=quiet, inputTracks="tracks", outputTrajectories="trajectories"
        ),
        examples.TrajectoriesToProtoTracks(
            level=quiet, inputTrajectories="trajectories", outputProtoTracks="listed"
        ),
        python_step(acts, keep, kinds, {}),
    ):
        sequencer.addAlgorithm(algorithm)
    try:
        sequencer.run()
    except RuntimeError as error:
        said = f"{where}: ACTS fails on this event ({one_line(str(error))})"
        raise InputError(f"{said}; check its hits, or leave the event out") from error
    return found[0]
