"""Mini-batches that are planned, against those that a run makes and records."""

import json
from pathlib import Path

import pytest

from bigtrk.config import load_settings
from bigtrk.cost.event_size import EventSize
from bigtrk.planning.sizes import mini_batches
from bigtrk.records.run_folder import read_run
from bigtrk.training.data.event_source import open_events
from bigtrk.training.settings import Configuration
from tests.distributed.runs import write_events
from tests.programs import run_here

SHADOW = ("sampling.method=shadow", "sampling.batch_size=12", "sampling.depth=2")
SMALL = ("model.hidden=8", "model.layers=2", "data.validation=0")


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    write_events(folder, n=3)
    return folder


def configured(folder: Path, *settings: str) -> Configuration:
    return load_settings(Configuration, None, [f"data.train=[{folder}]", *SMALL, *settings])


def test_sizes_of_sectors_are_those_that_are_read(events: Path) -> None:
    sources = open_events([events / "sectors"])
    found = mini_batches(configured(events, "sampling.method=sectors"), sources)
    assert found is not None
    sectors = [source.read(part, 2) for source in sources for part in range(2)]
    assert list(found.sizes) == [EventSize(one.n_nodes, one.n_edges) for one in sectors]


def test_wedges_are_equal_shares(events: Path) -> None:
    sources = open_events([events / "graphs"])
    found = mini_batches(configured(events, "sampling.method=wedges"), sources)
    assert found is not None
    assert len(found.sizes) == 8 * len(sources)
    total = sum(source.record["edges"] for source in sources)
    assert sum(size.edges for size in found.sizes) == pytest.approx(total)


def test_shadow_mini_batches_are_those_of_a_run(
    events: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, data = tmp_path / "run", f"data.train=[{events / 'graphs'}]"
    fixed = [data, *SMALL, *SHADOW, "data.events=1", "training.epochs=1", f"run.folder={run}"]
    assert run_here(["bigtrk/train.py", *fixed], monkeypatch, capsys)[0] == 0
    configuration = load_settings(Configuration, None, fixed)
    found = mini_batches(configuration, open_events([events / "graphs"])[:1])
    assert found is not None
    assert [size.edges for size in found.sizes] == [step.edges for step in read_run(run).steps]
    assert found.held_bytes > 0


def test_a_plan_is_of_mini_batches_where_events_are_sampled(
    events: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bigtrk", "plan", str(events / "graphs"), *SHADOW, "--ranks", "2"]
    command += ["--machine", "cpu", "--memory", "40"]
    plan = json.loads(run_here([*command, "--json"], monkeypatch, capsys)[1])
    found = mini_batches(configured(events, *SHADOW), open_events([events / "graphs"]))
    assert found is not None
    assert plan["events"]["largest"]["edges"] == max(size.edges for size in found.sizes)
    assert plan["sampling"] == {"method": "shadow", "held_bytes": found.held_bytes}
    assert [row["parts"] for row in plan["sectors"]] == [1]
    assert plan["smallest_parts"] == 1
    assert "of one rank, which keeps" in run_here(command, monkeypatch, capsys)[1]
    status, _, said = run_here(["bigtrk", "plan", "--events", "ctd", *SHADOW], monkeypatch, capsys)
    assert status == 2
    assert "name folders of them" in said
