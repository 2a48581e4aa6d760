"""Ranks that are forks of one process train as those that a launcher starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.records.run_folder import read_run
from bigtrk.studies.trials import by_torchrun
from scripts.bench.forked_ranks import ForkedRanks
from scripts.large_events.limited_ranks import as_programs, train_within
from tests.distributed.graphs import random_graph
from tests.scripts.test_memory_limit import real

SMALL = ["model.hidden=8", "model.layers=1", "data.validation=0", "training.epochs=1"]


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkedRanks]:
    with ForkedRanks() as started:
        yield started


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("forks") / "graphs"
    made = [random_graph(seed, 300, 2_000 + seed) for seed in range(3)]
    for graph in made:
        write_graph(folder, graph, {"nodes": graph.n_nodes, "edges": graph.n_edges})
    write_manifest(folder, "graphs", {}, [graph.name for graph in made])
    return [*SMALL, f"data.train=[{folder}]", "training.events_per_step=3"]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2, 3])
def test_they_train_as_by_torchrun(
    forks: ForkedRanks, settings: list[str], tmp_path: Path, ranks: int
) -> None:
    for name, train in (("launched", by_torchrun), ("forked", forks.train)):
        run = tmp_path / name
        assert train(ranks, [*settings, f"run.folder={run}"], tmp_path / f"{name}.log") == 0
    launched, forked = (read_run(tmp_path / name) for name in ("launched", "forked"))
    assert [step.loss for step in forked.steps] == [step.loss for step in launched.steps]
    said = [(tmp_path / f"{name}.log").read_text() for name in ("launched", "forked")]
    assert f"DDP on {ranks} rank(s)" in said[0]
    assert f"DDP on {ranks} rank(s)" in said[1]
    peaks = [run.epochs[0].peak_memory_bytes for run in (launched, forked)]
    assert peaks[1] == pytest.approx(peaks[0], rel=0.05)


def test_one_that_fails_leaves_the_others_to_train(
    forks: ForkedRanks, settings: list[str], tmp_path: Path
) -> None:
    log, run = tmp_path / "log", f"run.folder={tmp_path / 'run'}"
    assert forks.train(2, [*settings, run, "model.hidden=none"], log) == 2
    assert "model.hidden" in log.read_text()
    assert forks.train(2, [*settings, run], log) == 0


@real
def test_one_takes_its_limit_and_is_charged_for_less(
    forks: ForkedRanks, settings: list[str], tmp_path: Path
) -> None:
    """The memory of modules stays with the process that imported them."""
    gib = 2**30
    program = train_within(gib, 2, settings, tmp_path / "program", as_programs)
    fork = train_within(gib, 2, settings, tmp_path / "fork", forks.train_in)
    assert not program.out_of_memory
    assert not fork.out_of_memory
    assert 0.1 * program.peak_bytes < fork.peak_bytes < program.peak_bytes
    little = train_within(fork.peak_bytes // 2, 2, settings, tmp_path / "none", forks.train_in)
    assert little.out_of_memory
    assert little.seconds is None
