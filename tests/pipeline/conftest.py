"""Fixtures that the tests of pipelines share."""

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bigtrk.disk.local_files import UnnamedFile, UnnamedFiles
from bigtrk.events.event import Event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.builder import WindowBuilder, build_with_record
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.event_graph import EventGraph
from tests.pipeline.small_pipeline import Typed, make_pipeline
from tests.programs import Run, output_of


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a pipeline beside the events that trained it, and others with and without truth.

    Its training takes longer than any test of it: processes that test at once share one.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "hits to tracks"
    with (shared / "hits to tracks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "out" / "pipeline.json").exists():
            shutil.rmtree(folder, ignore_errors=True)  # another process may have failed at it
            make_pipeline(folder)
    return folder


@pytest.fixture(scope="session")
def event() -> Event:
    return simulate_event(60, seed=3, event_id=0)


@pytest.fixture(scope="session")
def graph(event: Event) -> EventGraph:
    return build_with_record(event, WindowBuilder(builtin_windows()))[0]


@pytest.fixture
def file_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lists the sizes of the files without a name that are taken from now on."""
    sizes: list[int] = []
    take = UnnamedFiles.take

    def noted(files: UnnamedFiles, size: int) -> UnnamedFile:
        sizes.append(size)
        return take(files, size)

    monkeypatch.setattr(UnnamedFiles, "take", noted)
    return sizes


@pytest.fixture
def typed(run_program: Run) -> Typed:
    """Runs a command of `bigtrk` that succeeds, and returns the JSON that it prints."""

    def run(*words: str | Path) -> Any:
        command = ["bigtrk", *map(str, words), "--json"]
        return json.loads(output_of(run_program(command)))

    return run
