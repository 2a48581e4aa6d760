"""Runs acorn's own track building and evaluation, or reading of graphs for a training: python -m
tests.oracle.acorn_program.

Needs a copy of acorn at ACORN_PATH. What acorn needs for plots and trainings alone may be absent:
its code is imported with nothing in its place. Arguments: the name of a class of track builders or
GraphDataset, and its configuration as JSON.
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
import torch

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


def stub(acorn: Path, *packages: str) -> None:
    """Leaves out what packages import themselves: all that readers and trainings need."""
    for package in packages:
        module = ModuleType(package)
        module.__path__ = [str(acorn / package.replace(".", "/"))]
        sys.modules[package] = module


def build_tracks(builder: str, config: dict[str, Any]) -> None:
    """Builds tracks and evaluates them; acorn writes what it found to its stage_dir."""
    made = getattr(importlib.import_module("acorn.stages.track_building"), builder)
    made.infer(config)
    made.evaluate(config)


def read_for_training(config: dict[str, Any]) -> None:
    """Writes what a training of acorn's reads of a trainset's first event: edges' weights and
    features.
    """
    stage = importlib.import_module("acorn.stages.edge_classifier.edge_classifier_stage")
    event = stage.GraphDataset(config["input_dir"], "trainset", 1, "fit", config).get(0)
    read = {name: event[name] for name in ("weights", *config["edge_features"])}
    torch.save(read, Path(config["stage_dir"]) / "read.pt")


def main() -> None:
    """Runs what the first argument names."""
    name, config = sys.argv[1], json.loads(sys.argv[2])
    acorn = Path(os.environ["ACORN_PATH"])
    of_older_pandas(acorn)
    sys.path.insert(0, str(acorn))
    sys.meta_path.append(Absent())
    stub(acorn, "acorn.stages", "acorn.stages.edge_classifier")
    stub(acorn, "acorn.stages.graph_construction", "acorn.stages.graph_construction.models")
    if name == "GraphDataset":
        read_for_training(config)
    else:
        build_tracks(name, config)


if __name__ == "__main__":
    main()
