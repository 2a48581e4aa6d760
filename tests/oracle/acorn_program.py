"""Runs acorn's own track building and evaluation: python -m tests.oracle.acorn_program.

Needs a copy of acorn at ACORN_PATH. What acorn needs for plots and trainings alone may be absent:
its code is imported with nothing in its place. Arguments: the name of a class of track builders,
and its configuration as JSON.
"""

import importlib
import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pandas as pd

UNUSED = (
    *("atlasify", "matplotlib", "seaborn", "sklearn", "wandb", "trackml", "uproot", "awkward"),
    *("pytorch_lightning", "lightning", "class_resolver", "torch_scatter", "torch_sparse", "frnn"),
    *("cudf", "cugraph", "cupy", "pynvml", "numba", "onnxruntime"),
)


class Nothing(ModuleType):
    """A package that is not installed, and whose every name is a mock."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


class Absent(MetaPathFinder, Loader):
    """Finds packages that are not installed and are not needed here."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds a package that nothing before found."""
        del path, target
        known = fullname.partition(".")[0] in UNUSED
        return ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Nothing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Runs nothing."""


def of_older_pandas(acorn: Path) -> None:
    """Lets a copy of acorn that was written for pandas 1 run with a newer one."""
    pd.options.future.infer_string = False
    written_for = (acorn / "acorn/stages/track_building/utils.py").read_text()
    if '"track_id": "n_reco_hits"' not in written_for:
        return
    newer = pd.Series.value_counts

    def value_counts(series: Any, *given: Any, **options: Any) -> Any:
        counts = newer(series, *given, **options).rename(series.name)
        counts.index.name = None
        return counts

    pd.Series.value_counts = value_counts


def main() -> None:
    """Builds tracks and evaluates them; acorn writes what it found to its stage_dir."""
    builder, config = sys.argv[1], json.loads(sys.argv[2])
    acorn = Path(os.environ["ACORN_PATH"])
    of_older_pandas(acorn)
    sys.path.insert(0, str(acorn))
    sys.meta_path.append(Absent())
    # Its own __init__ imports every stage, with all that readers and trainings need.
    stages = ModuleType("acorn.stages")
    stages.__path__ = [str(acorn / "acorn" / "stages")]
    sys.modules["acorn.stages"] = stages
    made = getattr(importlib.import_module("acorn.stages.track_building"), builder)
    made.infer(config)
    made.evaluate(config)


if __name__ == "__main__":
    main()
