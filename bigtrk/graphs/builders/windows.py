"""Windows: the layer pairs that doublets (two hits that a track could join) may span, the cuts on
each, and the doublets that pass. Shapes: N hits, E doublets, K candidates of one chunk.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat, field_validator, model_validator

from bigtrk.config import Settings, load_settings
from bigtrk.console import given_path
from bigtrk.disk.files import write_atomically
from bigtrk.errors import InputError
from bigtrk.events.event import Columns, Event
from bigtrk.events.geometry import is_open_data_detector
from bigtrk.graphs.features import Floats, Ints, doublet_columns, hit_coordinates

Layer = tuple[int, int]  # volume_id, layer_id
Interval = tuple[FiniteFloat, FiniteFloat]
# The detectors that windows are shipped for.
SHIPPED = {"trackml": "windows_trackml.yaml", "odd": "windows_odd.yaml"}


class LayerPair(Settings):
    """The cuts on doublets from `inner` to `outer`, each inclusive.

    phi_slope: largest |dphi / dr| (rad/mm); dphi: largest |dphi| (rad). z0: range of z where the
    line through both hits meets the beam line (mm); deta: range of eta outer - eta inner. edges:
    number of true edges inside these cuts in the events from which they were learnt.
    """

    inner: Layer
    outer: Layer
    edges: int = Field(ge=0)
    phi_slope: FiniteFloat = Field(ge=0)
    dphi: FiniteFloat = Field(ge=0, lt=math.pi)
    z0: Interval
    deta: Interval

    @field_validator("z0", "deta")
    @classmethod
    def _ascends(cls, interval: Interval) -> Interval:
        if interval[0] > interval[1]:
            raise ValueError("the lower bound must come first")
        return interval


class Windows(Settings):
    """The allowed layer pairs, and a note on how they were made."""

    made: str
    pairs: tuple[LayerPair, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_pair_once(self) -> "Windows":
        for (inner, outer), n in Counter((one.inner, one.outer) for one in self.pairs).items():
            if n > 1:
                raise ValueError(f"layer pair {inner} to {outer} appears twice; remove one")
        return self

    @property
    def volumes(self) -> set[int]:
        """Returns the ids of all volumes that contain a layer of some pair."""
        return {layer[0] for pair in self.pairs for layer in (pair.inner, pair.outer)}

    def digest(self) -> str:
        """Returns the SHA-256 of the pairs and their cuts."""
        return hashlib.sha256(self.model_dump_json(exclude={"made"}).encode()).hexdigest()


def read_windows(path: Path) -> Windows:
    """Reads a windows file; InputError if it is missing, not YAML, or has a wrong window."""
    return load_settings(Windows, path)


def builtin_windows(detector: str = "trackml") -> Windows:
    """Returns the windows that bigtrk ships for `detector`, a name in SHIPPED."""
    return read_windows(Path(__file__).with_name(SHIPPED[detector]))


def find_windows(given: str | Path | None, event: Event) -> Windows:
    """Returns the windows for events like `event`. given: a windows file, or the name of a detector
    with shipped windows; None: the shipped windows of the detector whose volumes the event has.
    """
    volumes = event.hits["volume_id"].astype(np.int64)
    name = str(given or ("odd" if is_open_data_detector(volumes) else "trackml"))
    path = given_path(name)
    if name not in SHIPPED and not path.exists():
        raise InputError(
            f"{path}: is neither a detector with shipped windows ({', '.join(SHIPPED)}) nor a "
            "file; name one of these detectors, or the windows.yaml of a folder of graphs"
        )
    windows = builtin_windows(name) if name in SHIPPED else read_windows(path)
    unknown = sorted(set(volumes.tolist()) - windows.volumes)
    if unknown and (given is None or windows.volumes.isdisjoint(volumes.tolist())):
        raise InputError(
            f"{event.name}: has hits in volumes {', '.join(map(str, unknown))}, which "
            f"{f'--windows {given} does' if given else 'the shipped windows do'} not cover; learn "
            "windows from the events with --learn-windows, or give this detector's by --windows"
        )
    return windows


def write_windows(path: Path, windows: Windows) -> None:
    """Writes `windows` as YAML with one layer pair per line, atomically."""
    content = windows.model_dump(mode="json")
    text = yaml.safe_dump({"made": content["made"]}, width=90) + "pairs:\n"
    for pair in content["pairs"]:
        row = yaml.safe_dump(pair, default_flow_style=True, sort_keys=False, width=math.inf)
        text += f"- {row}"
    write_atomically(path, lambda temporary: temporary.write_text(text))


CHUNK = 1_000_000  # candidates tested at a time: about 100 MB
# Hits closer than this in r give no slope, as all hits of a ring of long strips are put at one r.
# Such a doublet has phi_slope = z0 = 0, and its outer hit is the one of larger |z|.
FLAT = 5.0  # mm
# Phi differences are tested exactly after the search, which rounds differently at the wrap.
SLACK = 1e-9  # rad


@dataclass(frozen=True)
class LayerHits:
    """The n hits of one layer, sorted by phi and repeated one turn below and above. row [3 n]: row
    of the event; phi [3 n] (rad), ascending; own: slice of the hits, not their repetitions.
    """

    row: Ints
    phi: Floats
    own: slice
    r_min: float
    r_max: float


def build_doublets(hits: Columns, windows: Windows) -> Ints:
    """Returns all outward doublets that pass the windows: [2, E] hit rows, inner then outer."""
    found = [doublets for _, doublets in doublets_by_pair(hits, windows)]
    return np.concatenate([np.empty((2, 0), dtype=np.int64), *found], axis=1)


def doublets_by_pair(hits: Columns, windows: Windows) -> Iterator[tuple[LayerPair, Ints]]:
    """Yields each layer pair with hits on both layers, and its doublets that pass: [2, E]."""
    nodes = hit_coordinates(hits)
    layers = _hits_by_layer(hits, nodes)
    for pair in windows.pairs:
        if pair.inner not in layers or pair.outer not in layers:
            continue
        inner, outer = layers[pair.inner], layers[pair.outer]
        rows, phi = inner.row[inner.own], inner.phi[inner.own]
        radial = np.maximum(outer.r_max - nodes["r"][rows], 0.0)
        reach = np.minimum(pair.dphi, pair.phi_slope * radial)
        reach[nodes["r"][rows] > outer.r_min - FLAT] = pair.dphi
        first = np.searchsorted(outer.phi, phi - reach - SLACK, side="left")
        last = np.searchsorted(outer.phi, phi + reach + SLACK, side="right")
        found = []
        for part in chunks(last - first):
            candidates = expand(rows[part], first[part], last[part], outer.row)
            passed = _passes(window_columns(nodes, candidates), pair)
            found.append(candidates.compress(passed, axis=1))
        yield pair, np.concatenate(found, axis=1)


def _hits_by_layer(hits: Columns, nodes: dict[str, Floats]) -> dict[Layer, LayerHits]:
    volume, layer = (hits[name].astype(np.int64) for name in ("volume_id", "layer_id"))
    order = np.lexsort((nodes["phi"], layer, volume))
    new = np.diff(volume[order]).astype(bool) | np.diff(layer[order]).astype(bool)
    layers = {}
    for rows in np.split(order, np.flatnonzero(new) + 1) if len(order) else []:
        phi = nodes["phi"][rows]
        layers[int(volume[rows[0]]), int(layer[rows[0]])] = LayerHits(
            row=np.tile(rows, 3),
            phi=np.concatenate([phi - 2 * np.pi, phi, phi + 2 * np.pi]),
            own=slice(len(rows), 2 * len(rows)),
            r_min=float(nodes["r"][rows].min()),
            r_max=float(nodes["r"][rows].max()),
        )
    return layers


def chunks(counts: Ints) -> Iterator[slice]:
    """Yields slices of rows whose `counts` sum to at most CHUNK, or of one row with more."""
    total = np.cumsum(counts)
    start = 0
    while start < len(counts):
        done = total[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(total, done + CHUNK, side="right")))
        yield slice(start, stop)
        start = stop


def expand(rows: Ints, first: Ints, last: Ints, outer_row: Ints) -> Ints:
    """Pairs each of `rows` [n] with every hit of its outer_row[first:last]: [2, K]."""
    counts = last - first
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.stack([np.repeat(rows, counts), outer_row[np.repeat(first, counts) + offset]])


def window_columns(nodes: Mapping[str, Floats], pairs: Ints) -> dict[str, Floats]:
    """Computes `doublet_columns`; NaN for inward doublets; phi_slope = z0 = 0 where |dr| < FLAT."""
    columns = doublet_columns(nodes, pairs)
    inner, outer = pairs
    flat = np.abs(columns["dr"]) < FLAT
    growth = np.abs(nodes["z"][outer]) - np.abs(nodes["z"][inner])
    outward = np.where(flat, growth > 0, columns["dr"] > 0)
    for name in ("phi_slope", "z0"):
        columns[name] = np.where(flat, 0.0, columns[name])
    return {name: np.where(outward, column, np.nan) for name, column in columns.items()}


def _passes(columns: dict[str, Floats], pair: LayerPair) -> NDArray[np.bool_]:
    passed = np.abs(columns["dphi"]) <= pair.dphi
    passed &= np.abs(columns["phi_slope"]) <= pair.phi_slope
    for name, (low, high) in (("z0", pair.z0), ("deta", pair.deta)):
        passed &= (columns[name] >= low) & (columns[name] <= high)
    return passed
