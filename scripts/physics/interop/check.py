"""A check of exchange with other software, and the parts that checks share."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shutil import copy
from typing import Any

import bigtrk
from bigtrk.api import Graphs
from bigtrk.console import complain, follow, say
from bigtrk.formats.heptrkx import import_heptrkx_folder
from bigtrk.graphs.builders.build_folder import build_with
from bigtrk.graphs.builders.builder import TrueEdgeBuilder

EVENTS, PARTICLES = 4, 600
HEPTRKX = 5  # graphs

Found = dict[str, float]  # largest differences, by what is compared


@dataclass(frozen=True)
class Check:
    """A check by its name: `run` returns what it measured, and raises where it is wrong.

    real: it needs real events.
    """

    name: str
    run: Callable[["Material"], Found]
    real: bool = False


@dataclass(frozen=True)
class Material:
    """Events, graphs and trained models, made when a check first asks for them.

    folder: where they are made. testdata: that of BIGTRK_TESTDATA.
    """

    folder: Path
    testdata: Path | None

    @cached_property
    def events(self) -> Path:
        bigtrk.simulate(self.folder / "events", events=EVENTS, particles=PARTICLES)
        return self.folder / "events"

    @cached_property
    def graphs(self) -> Graphs:
        return bigtrk.build_graphs(self.events, self.folder / "graphs")

    @cached_property
    def real_events(self) -> Path:
        assert self.testdata is not None
        return self.testdata / "data" / "trackml_event1000"

    @cached_property
    def real_graphs(self) -> Graphs:
        """The graph of event 1000, by the windows that are shipped."""
        return bigtrk.build_graphs(self.real_events, self.folder / "event1000")

    @cached_property
    def heptrkx_files(self) -> Path:
        """A folder of a few of the npz files."""
        assert self.testdata is not None
        folder = self.folder / "heptrkx"
        folder.mkdir()
        files = sorted((self.testdata / "data" / "heptrkx_graphs").glob("*.npz"))
        for file in files[:HEPTRKX]:
            copy(file, folder)
        return folder

    @cached_property
    def heptrkx_graphs(self) -> Graphs:
        import_heptrkx_folder(self.heptrkx_files, self.folder / "heptrkx_graphs")
        return bigtrk.open_graphs(self.folder / "heptrkx_graphs")

    @cached_property
    def classifier(self) -> Path:
        return self._trained("classifier", self.graphs.folder.path, "model.layers=3")

    @cached_property
    def filter(self) -> Path:
        return self._trained("filter", self.graphs.folder.path, "model.name=mlp")

    @cached_property
    def embedding(self) -> Path:
        truth = self.folder / "true_edges"
        build_with(self.events, truth, TrueEdgeBuilder())
        settings = ["model.name=embedding", "data.node_features=[r,cos_phi,sin_phi,z,eta]"]
        return self._trained("embedding", truth, *settings)

    def _trained(self, name: str, graphs: Path, *settings: str) -> Path:
        return bigtrk.train(
            bigtrk.configure(
                f"data.train=[{graphs}]",
                "data.validation=1",
                "model.hidden=32",
                "optimizer.lr=0.003",
                "training.epochs=5",
                f"run.folder={self.folder / name}",
                *settings,
            )
        )


@dataclass(frozen=True)
class Outcome:
    """The end of a check: skipped, or what it found, or why it failed."""

    name: str
    found: Found
    failed: str | None = None
    skipped: bool = False

    def as_json(self) -> dict[str, Any]:
        """Returns the entry of a result file."""
        return {**vars(self)}


def run_checks(checks: Sequence[Check], material: Material) -> list[Outcome]:
    """Runs the checks one after the other; a failure ends none but its own."""
    return [_run(check, material) for check in follow(checks, len(checks), "checks")]


def _run(check: Check, material: Material) -> Outcome:
    if check.real and material.testdata is None:
        say(f"{check.name}: skipped, as BIGTRK_TESTDATA names no folder")
        return Outcome(check.name, {}, skipped=True)
    try:
        found = check.run(material)
    except Exception as error:  # a missing package is a failed check, too
        traceback.print_exc()
        complain(f"{check.name}: failed: {error}")
        return Outcome(check.name, {}, failed=f"{type(error).__name__}: {error}")
    say(
        f"{check.name}: {', '.join(f'{key} {value:.2g}' for key, value in found.items()) or 'same'}"
    )
    return Outcome(check.name, found)
