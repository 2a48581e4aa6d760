"""Windows: the layer pairs that doublets may join, and the cuts on each pair."""

import hashlib
import math
from importlib import resources
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, Field, FiniteFloat, model_validator

from bigtrk.config import Settings, load_settings
from bigtrk.disk.files import write_atomically


def _ascending(interval: tuple[float, float]) -> tuple[float, float]:
    if interval[0] > interval[1]:
        raise ValueError("the lower bound must come first")
    return interval


Layer = tuple[int, int]  # volume_id, layer_id
Interval = Annotated[tuple[FiniteFloat, FiniteFloat], AfterValidator(_ascending)]
BUILTIN = "windows_trackml.yaml"


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

    def digest(self) -> str:
        """Returns the SHA-256 of the pairs and their cuts."""
        return hashlib.sha256(self.model_dump_json(exclude={"made"}).encode()).hexdigest()


def read_windows(path: Path) -> Windows:
    """Reads a windows file.

    Raises:
        InputError: the file is missing, is not YAML or a window in it is wrong.
    """
    return load_settings(Windows, path)


def builtin_windows() -> Windows:
    """Returns the windows for the TrackML detector that are shipped with bigtrk."""
    with resources.as_file(resources.files("bigtrk.graphs.builders") / BUILTIN) as path:
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
