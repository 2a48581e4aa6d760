"""Whole runs on two ranks: checkpoints, resuming, the record, the model at the end."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.errors import InputError
from bigtrk.graphs.graph_folder import write_graph
from bigtrk.graphs.manifest import write_manifest
from bigtrk.graphs.sector_folder import write_sectors
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.reports import read_run
from bigtrk.reports.routes import routes
from bigtrk.training.evaluate import evaluate_run
from bigtrk.training.event_source import split_validation
from bigtrk.training.resume import resumed_configuration
from bigtrk.training.run import Events, fit
from bigtrk.training.settings import Configuration
from partition.sectors import cut
from tests.distributed.graphs import random_graph, random_parts
from tests.distributed.ranks import run_ranks


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five whole events, and three of them cut in two, in folders `graphs` and `sectors`."""
    folder = tmp_path_factory.mktemp("events")
    names = []
    for seed in range(5):
        graph = random_graph(seed, 40 + 5 * seed, 240)
        write_graph(folder / "graphs", graph, {"nodes": graph.n_nodes, "edges": graph.n_edges})
        names.append(graph.name)
    made = write_manifest(folder / "graphs", "graphs", {}, names)
    for seed in range(3):
        graph = random_graph(seed, 40 + 5 * seed, 240)
        record = {
            "nodes": graph.n_nodes,
            "edges": graph.n_edges,
            "source_digests": made["events"][graph.name]["digests"],
        }
        write_sectors(folder / "sectors", cut(graph, random_parts(graph, 2, 2), 2), record)
    write_manifest(folder / "sectors", "sectors", {}, names[:3])
    return folder


def settings(graphs: Path, run: Path, epochs: int, engine: dict[str, str]) -> Configuration:
    return Configuration.model_validate(
        {
            "data": {"train": [graphs / "graphs", graphs / "sectors"], "validation": 1},
            "model": {"hidden": 8, "layers": 2},
            "training": {
                "epochs": epochs,
                "events_per_step": 2,
                "routing": "stored",
                "pt_weight": 0.3,
            },
            "optimizer": {"lr": 0.01, "warmup_steps": 3},
            "engine": engine,
            "run": {"folder": run},
        }
    )


def train(ranks: Ranks, configuration: Configuration, resume: Path | None = None) -> str:
    if resume:
        configuration = resumed_configuration(resume, ["training.epochs=3"])
    data = configuration.data
    return str(fit(configuration, ranks, Events(*split_validation(data.train, 1)), resume))


def evaluated(ranks: Ranks, run: Path, data: Path) -> dict[str, Any]:
    return evaluate_run(run, data, None, ranks)


def steps(run: Path) -> list[Any]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [(r["step"], r["loss"], r["lr"]) for r in records if r["kind"] == "step"]


ENGINES = [
    {"name": "ddp"},
    # Slow: test_engines resumes FSDP2's shards as well.
    pytest.param({"name": "fsdp2"}, marks=pytest.mark.slow),
    {"name": "deepspeed", "ds_config": "zero1"},
    {"name": "deepspeed", "ds_config": "zero3"},
]


@pytest.mark.parametrize("engine", ENGINES, ids=["ddp", "fsdp2", "zero1", "zero3"])
def test_resuming_continues_bit_for_bit(
    tmp_path: Path, graphs: Path, engine: dict[str, str]
) -> None:
    whole, halted = tmp_path / "whole", tmp_path / "halted"
    run_ranks(2, train, settings(graphs, whole, 3, engine))
    run_ranks(2, train, settings(graphs, halted, 1, engine))
    with (halted / "metrics.jsonl").open("a") as lines:
        lines.write('{"kind": "st')  # a crash in the middle of a line
    run_ranks(2, train, settings(graphs, halted, 1, engine), halted)
    assert steps(halted) == steps(whole)
    assert len(steps(whole)) == 6
    weights, resumed = (load_file(run / "model.safetensors") for run in (whole, halted))
    assert weights.keys() == resumed.keys()
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)
    assert sorted(p.name for p in (whole / "checkpoints").iterdir()) == [
        "epoch-0002",
        "epoch-0003",
        "latest.json",
    ]


def never_so_good_again(run: Path) -> None:
    """Let the first checkpoint know a loss that no epoch will reach."""
    path = run / "checkpoints" / "epoch-0001" / "progress.json"
    progress = json.loads(path.read_text())
    progress["plateau"] = {**progress["plateau"], "best": 1e-9, "reductions": 1}
    path.write_text(json.dumps(progress))


def test_the_plateau_is_resumed(tmp_path: Path, graphs: Path) -> None:
    run = tmp_path / "run"
    plateau = {"schedule": "plateau", "plateau_patience": 0, "lr": 0.01}
    start = settings(graphs, run, 1, {"name": "ddp"})
    start = start.model_copy(update={"optimizer": OptimizerSettings.model_validate(plateau)})
    run_ranks(1, train, start)
    saved = json.loads((run / "checkpoints" / "epoch-0001" / "progress.json").read_text())
    (epoch,) = read_run(run).epochs
    assert epoch.validation is not None
    assert saved["plateau"] == {"best": epoch.validation.loss, "waited": 0, "reductions": 0}
    never_so_good_again(run)
    run_ranks(1, train, start, run)
    rates = [lr for _, _, lr in steps(run)]
    assert rates == [0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025]


def test_the_record_reads_back_and_the_model_scores_alike_in_sectors(
    tmp_path: Path, graphs: Path
) -> None:
    run_ranks(2, train, settings(graphs, tmp_path / "run", 2, {"name": "ddp"}))
    run = read_run(tmp_path / "run")
    assert sorted(routes(run).values()) == [1, 2, 2, 2]
    assert [epoch.epoch for epoch in run.epochs] == [0, 1]
    assert all(step.pt_loss is not None and step.pt_loss > 0 for step in run.steps)
    shares = run.epochs[0].shares
    assert shares is not None
    assert shares.exchange > 0
    assert sum(shares.model_dump().values()) == pytest.approx(1)

    unseen = run_ranks(1, evaluated, tmp_path / "run", graphs / "graphs")[0]
    assert (unseen["events"], unseen["events_trained_on"]) == (1, 0)
    assert unseen["edge_metrics"]["auc"] == pytest.approx(
        run.epochs[-1].validation.auc if run.epochs[-1].validation else None, rel=1e-6
    )
    assert unseen["edge_metrics"]["log_pt_error"] == pytest.approx(
        run.epochs[-1].validation.log_pt_error if run.epochs[-1].validation else None, rel=1e-6
    )
    in_sectors = run_ranks(2, evaluated, tmp_path / "run", graphs / "sectors")[0]
    assert (in_sectors["events"], in_sectors["events_trained_on"]) == (3, 3)


def test_a_run_is_not_overwritten(tmp_path: Path, graphs: Path) -> None:
    configuration = settings(graphs, tmp_path / "run", 1, {"name": "ddp"})
    run_ranks(1, train, configuration)
    with pytest.raises(Exception, match="already holds a run; continue it with --resume"):
        run_ranks(1, train, configuration)


def test_resuming_with_another_engine_is_refused(tmp_path: Path, graphs: Path) -> None:
    run = tmp_path / "run"
    configuration = settings(graphs, run, 1, {"name": "ddp"})
    run_ranks(1, train, configuration)
    with pytest.raises(Exception, match="written by DDP on 1 ranks, this is DDP on 2"):
        run_ranks(2, train, configuration, run)


def test_folders_without_a_model_say_so(tmp_path: Path, graphs: Path) -> None:
    with pytest.raises(InputError, match=r"holds no model\.safetensors"):
        evaluate_run(tmp_path, graphs / "graphs", None, Ranks(0, 1, 0, 1, "python"))
