"""`bigtrk audit`: what it writes and prints of a run, and what it refuses in one line."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bigtrk.audit.audit import AUDIT
from bigtrk.audit.names import Way
from bigtrk.audit.points import read_training
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.parallel.process_group import process_group
from bigtrk.records.audit import AuditRecord
from bigtrk.records.record import read_record
from bigtrk.records.run_folder import RUN
from bigtrk.training.model_files import build_model, load_model
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS
from bigtrk.training.settings import Configuration
from tests.audit.small import configuration, write_data, write_run
from tests.distributed.graphs import random_graph
from tests.distributed.ranks import ALONE
from tests.distributed.runs import fit_all
from tests.programs import run_here

FEW = ["--draws", "4", "--events", "2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trains four epochs of two steps, in bf16, on two of three events, in `run`."""
    folder = tmp_path_factory.mktemp("trained")
    write_data(folder)
    configured = configuration(
        folder,
        model={"hidden": 4, "layers": 2, "precision": "bf16"},
        training={"epochs": 4},
        run={"folder": folder / "run"},
    )
    with process_group(ALONE):
        fit_all(ALONE, configured)
    return folder


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: object) -> tuple[int, str, str]:
        return run_here(["bigtrk", "audit", *map(str, arguments)], monkeypatch, capsys)

    return run


def test_a_run_is_audited_at_all_its_points(trained: Path, audit: Any) -> None:
    run = trained / "run"
    others = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    status, printed, errors = audit(run, trained / "sectors", *FEW)
    assert status == 0, errors
    record = read_record(AuditRecord, run / AUDIT)
    assert [(one.weights, one.step) for one in record.points] == [
        ("start", 0),
        ("step 6", 6),
        ("end", 8),
    ]
    for point in record.points:
        ways = [*(one.way for one in point.drawn), *(one.way for one in point.same)]
        assert ways == [
            *("events", "shadow", "naive-sectors", "halo-sectors", "wedges"),
            *("fp32", "bf16", "exchange in float64", "exchange in fp32"),
        ]
        assert [one.draws for one in point.drawn] == [2, 4, 4, 4, 4]
        assert point.same[2].exact
    assert len({point.loss for point in record.points}) == 3
    summary = json.loads(printed.splitlines()[-1])
    assert summary["events"] == 2
    assert set(summary["points"]["end"]) >= {"events", "shadow", "exchange in fp32", "norm"}
    assert "Gradients at the weights of 'step 6' after 6 steps: loss" in printed
    assert "exact" in printed
    assert "Traceback" not in errors
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert {path: kept[path] for path in others} == others
    assert set(kept) - set(others) == {run / AUDIT}


def test_the_newest_weights_alone_and_json_alone(trained: Path, audit: Any) -> None:
    chosen = [part for way in (Way.EVENTS, Way.WEDGES) for part in ("--way", way.value)]
    status, printed, _ = audit(
        trained / "run", trained / "graphs", *FEW, *chosen, "--newest", "--json"
    )
    assert status == 0
    assert printed.count("\n") == 1
    [end] = json.loads(printed)["points"].values()
    assert {"events", "wedges"} == set(end) - {"step", "loss", "norm"}


def test_whole_graphs_allow_what_needs_no_sectors(trained: Path, audit: Any) -> None:
    status, printed, _ = audit(trained / "run", trained / "graphs", *FEW, "--newest", "--json")
    assert status == 0
    [end] = json.loads(printed)["points"].values()
    assert {"events", "shadow", "wedges", "fp32", "bf16"} == set(end) - {"step", "loss", "norm"}


@pytest.mark.parametrize("setting", ["auto", "spill"])
def test_what_is_for_whole_events_does_not_hinder_mini_batches(
    trained: Path, tmp_path: Path, audit: Any, setting: str
) -> None:
    run = shutil.copytree(trained / "run", tmp_path / "run")
    value: bool | str = True if setting == "auto" else str(tmp_path / "gone")
    for name, key in ((RUN, "config"), (DESCRIPTION, "configuration")):
        record = json.loads((run / name).read_text())
        record[key]["training"][setting] = value
        (run / name).write_text(json.dumps(record))
    chosen = ("--way", Way.SHADOW.value)
    status, _, errors = audit(run, trained / "graphs", *FEW, *chosen, "--newest", "--json")
    assert status == 0, errors


def test_the_points_of_a_run(trained: Path, tmp_path: Path) -> None:
    run = trained / "run"
    configured, _, points = read_training(run, newest=False)
    fresh = build_model(configured).state_dict()
    assert all(torch.equal(points[0].weights[name], value) for name, value in fresh.items())
    ended = load_model(run).model.state_dict()
    assert [one.name for one in points] == ["start", "step 6", "end"]
    assert all(torch.equal(points[-1].weights[name], value) for name, value in ended.items())
    write_run(tmp_path / "imported", Configuration())
    names = [one.name for one in read_training(tmp_path / "imported", newest=False).points]
    assert names == ["start", "end"]


def test_the_points_of_a_run_that_goes_on_are_its_checkpoints(
    trained: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(trained / "run", tmp_path / "run")
    for name in (WEIGHTS, DESCRIPTION):
        (run / name).unlink()
    points = read_training(run, newest=False).points
    assert [(one.name, one.step) for one in points] == [("start", 0), ("step 6", 6), ("step 8", 8)]


def other_features(folder: Path) -> Path:
    """Writes a graph that lacks what the run's model reads."""
    graph = random_graph(0, 20, 60)
    names = tuple(f"a{i}" for i in range(4))
    write_graph(folder, replace(graph, node_feature_names=names), {"nodes": 20, "edges": 60})
    write_manifest(folder, "graphs", {}, [graph.name])
    return folder


def test_bad_input_is_told_in_one_line(trained: Path, tmp_path: Path, audit: Any) -> None:
    run, graphs = trained / "run", trained / "graphs"
    (tmp_path / "empty").mkdir()
    embedding = {"model": {"name": "embedding"}}
    chosen = {"model": {"name": "mlp"}, "negatives": {"hard": 1}, "sampling": {"method": "wedges"}}
    for name, sections in (("embeds", embedding), ("chooses", chosen)):
        write_run(tmp_path / name, Configuration.model_validate(sections))
    cases = [
        ((tmp_path / "absent", graphs), "absent: holds no model.safetensors"),
        ((tmp_path / "empty", graphs), "empty: holds no model.safetensors"),
        ((run, tmp_path / "absent"), "absent: no such folder"),
        ((run, other_features(tmp_path / "other")), "has no node feature 'r'; choose from"),
        ((run, graphs, "--way", "naive-sectors"), "--way naive-sectors needs their sectors; cut"),
        ((run, graphs, "--way", "exchange"), "graphs: holds whole graphs, and --way exchange"),
        ((run, graphs, "--way", "sideways"), "--way"),
        ((run, graphs, "--draws", "2"), "--draws"),
        ((tmp_path / "embeds", graphs), "embeds: its model embeds hits"),
        ((tmp_path / "chooses", graphs), "chooses: a step chooses the false edges"),
    ]
    for arguments, told in cases:
        status, printed, errors = audit(*arguments)
        assert (status, printed) == (2, ""), arguments
        assert errors.startswith("bigtrk: error: "), errors
        assert told in errors
        assert errors.count("\n") == 1
    assert not (tmp_path / "embeds" / AUDIT).exists()


def test_several_ranks_are_refused_by_the_first(
    trained: Path, audit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank, told in (
        ("0", "bigtrk: error: audit takes one rank; start it without torchrun"),
        ("1", ""),
    ):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        status, printed, errors = audit(trained / "run", trained / "graphs")
        assert (status, printed) == (2, "")
        assert errors.startswith(told)
        assert errors.count("\n") == (rank == "0")
