"""Windows: the layer pairs that doublets may join, and the cuts on each pair."""

import hashlib
import math
from importlib import resources
from pathlib import Path
from typing import Annotated

import numpy as np
import yaml
from pydantic import AfterValidator, Field, FiniteFloat, model_validator

from bigtrk.config import Settings, load_settings
from bigtrk.console import given_path
from bigtrk.disk.files import write_atomically
from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.open_data_detector import is_open_data_detector


def _ascending(interval: tuple[float, float]) -> tuple[float, float]:
    if interval[0] > interval[1]:
        raise ValueError("the lower bound must come first")
    return interval


Layer = tuple[int, int]  # volume_id, layer_id
Interval = Annotated[tuple[FiniteFloat, FiniteFloat], AfterValidator(_ascending)]
# The detectors that windows are shipped for.
SHIPPED = {"trackml": "windows_trackml.yaml", "odd": "windows_odd.yaml"}


class LayerPair(Settings):
    """The cuts on doublets from `inner` to `outer`, each inclusive.

    phi_slope: largest |dphi / dr| (rad/mm); dphi: largest |dphi| (rad); both serve either charge.
    z0: where the line through both hits meets the beam line (mm); deta: eta outer - eta inner.
    edges: true edges inside these cuts where they were learned.
    """

    inner: Layer
    outer: Layer
    edges: int = Field(ge=0)
    phi_slope: FiniteFloat = Field(ge=0)
    dphi: FiniteFloat = Field(ge=0, lt=math.pi)
    z0: Interval
    deta: Interval


class Windows(Settings):
    """The allowed layer pairs, and a note on how they were made."""

    made: str
    pairs: tuple[LayerPair, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_pair_once(self) -> "Windows":
        known: set[tuple[Layer, Layer]] = set()
        for pair in self.pairs:
            if (pair.inner, pair.outer) in known:
                raise ValueError(f"layer pair {pair.inner} to {pair.outer} appears twice")
            known.add((pair.inner, pair.outer))
        return self

    @property
    def volumes(self) -> set[int]:
        """Returns the volumes that some pair has a layer in."""
        return {layer[0] for pair in self.pairs for layer in (pair.inner, pair.outer)}

    def digest(self) -> str:
        """Returns the SHA-256 of the pairs and their cuts."""
        return hashlib.sha256(self.model_dump_json(exclude={"made"}).encode()).hexdigest()


def read_windows(path: Path) -> Windows:
    """Reads a windows file.

    Raises:
        InputError: the file is missing, is not YAML or a window in it is wrong.
    """
    return load_settings(Windows, path)


def builtin_windows(detector: str = "trackml") -> Windows:
    """Returns the windows for a detector of SHIPPED that are shipped with bigtrk."""
    files = resources.files("bigtrk.graphs.builders")
    with resources.as_file(files / SHIPPED[detector]) as path:
        return read_windows(path)


def find_windows(given: str | Path | None, event: Event) -> Windows:
    """Finds the windows for events like `event`: those that are shipped for a detector, by its
    name, or a file's; by default those shipped for the detector in whose volumes the hits are.

    Raises:
        InputError: there is no such file, or the windows know none, or by default not all, of the
            volumes that the event has hits in.
    """
    volumes = event.hits["volume_id"].astype(np.int64)
    if given is None:
        windows = builtin_windows("odd" if is_open_data_detector(volumes) else "trackml")
    else:
        windows = _named(given)
    unknown = sorted(set(volumes.tolist()) - windows.volumes)
    if unknown and (given is None or windows.volumes.isdisjoint(volumes.tolist())):
        raise InputError(
            f"{event.name}: has hits in volumes {', '.join(map(str, unknown))}, of which the "
            f"{f'windows {given}' if given else 'shipped windows'} know nothing; learn them from "
            "the events with --learn-windows, or give those of this detector with --windows"
        )
    return windows


def _named(given: str | Path) -> Windows:
    if str(given) in SHIPPED:
        return builtin_windows(str(given))
    path = given_path(given)
    if not path.exists():
        raise InputError(
            f"{path}: is neither a detector that windows are shipped for ({', '.join(SHIPPED)}) "
            "nor a file; name one of them, or the windows.yaml of a folder of graphs"
        )
    return read_windows(path)


def write_windows(path: Path, windows: Windows) -> None:
    """Writes `windows` as YAML with one layer pair per line, atomically."""
    content = windows.model_dump(mode="json")
    head = yaml.safe_dump({"made": content["made"]}, width=90)
    rows = [
        "- " + yaml.safe_dump(pair, default_flow_style=True, sort_keys=False, width=math.inf)
        for pair in content["pairs"]
    ]
    text = head + "pairs:\n" + "".join(rows)
    write_atomically(path, lambda temporary: temporary.write_text(text))
