"""A training that starts from a run's weights, with their scales, and remembers their events."""

import io
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.config import by_key
from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run import MeasuredScales
from bigtrk.records.run_folder import read_run_record
from bigtrk.training.data.event_source import split_validation
from bigtrk.training.evaluation.evaluated_model import load_evaluated
from bigtrk.training.model_files import build_model, describe, read_description
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS, save_model
from bigtrk.training.settings import Configuration
from bigtrk.training.start.weights import earlier_events, starting_model
from tests.distributed.graphs import random_graph
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import train, write_events

MEASURED = MeasuredScales(nodes={"pulse": (7.0, 2.0)})
# AdamW's steps are then too small to change a float32.
STANDSTILL = {"lr": 1e-30}


def configuration(folder: Path, **sections: Any) -> Configuration:
    return Configuration.model_validate(
        {
            "data": {"train": [folder / "graphs"], "node_features": ["r", "pulse"]},
            "model": {"hidden": 8, "layers": 2},
            "optimizer": STANDSTILL,
            "run": {"folder": folder / "run"},
            **sections,
        }
    )


def with_pulse(seed: int, n_nodes: int, n_edges: int) -> EventGraph:
    graph = random_graph(seed, n_nodes, n_edges)
    return replace(
        graph,
        node_feature_names=(*graph.node_feature_names, "pulse"),
        node_features=torch.cat([graph.node_features, torch.rand(n_nodes, 1)], dim=1),
    )


def earlier_run(folder: Path, **sections: Any) -> Path:
    """A run whose model was trained on an event of elsewhere."""
    made = configuration(folder, training={"seed": 9}, **sections)
    save_model(
        folder / "start", build_model(made).state_dict(), describe(made, ["far away"], MEASURED)
    )
    return folder / "start"


def train_and_resume(ranks: Ranks, folder: Path) -> set[str]:
    """Trains an epoch from the weights of `start`, then two more without them; the events that the
    model of its checkpoint was trained on.
    """
    training = {"epochs": 1, "seed": 3, "start_from": folder / "start"}
    run = Path(train(ranks, configuration(folder, training=training)))
    if ranks.is_first:
        (run / WEIGHTS).rename(run / "first")
    torch.distributed.barrier()
    seen = set(load_evaluated(run, ranks).trained_on)
    if ranks.is_first:
        (folder / "start" / WEIGHTS).unlink()
    train(ranks, configuration(folder, training=training), run)
    return seen


def test_a_training_goes_on_with_another_runs_weights(tmp_path: Path) -> None:
    write_events(tmp_path, make=with_pulse)
    started = load_file(earlier_run(tmp_path) / WEIGHTS)
    seen = run_ranks(2, train_and_resume, tmp_path)[0]
    run = tmp_path / "run"
    for file in ("first", WEIGHTS):
        found = load_file(run / file)
        assert found.keys() == started.keys()
        assert all(torch.equal(found[name], started[name]) for name in found), file
    assert read_run_record(run).measured == read_description(run).measured == MEASURED
    trained_on = read_description(run).trained_on
    assert set(trained_on) == seen
    assert trained_on[0] == "far away"
    assert len(trained_on) == len(seen) == 5, "four of its own"


def warned_of(ranks: Ranks, folder: Path) -> str:
    """Returns what is said by a training that validates on an event which trained its start."""
    made = configuration(folder, training={"start_from": folder / "start"})
    _, held = split_validation(made.data.train, 1)
    described = describe(made, [held[0].origin], MEASURED)
    save_model(folder / "start", build_model(made).state_dict(), described)
    said = io.StringIO()
    with redirect_stderr(said):
        train(ranks, made)
    return said.getvalue()


def test_validation_on_events_that_trained_the_weights_is_told(tmp_path: Path) -> None:
    write_events(tmp_path, make=with_pulse)
    [said] = run_ranks(1, warned_of, tmp_path)
    assert said.count("1 of the 1 events to validate on trained the weights") == 1
    assert "set data.validation to others" in said


def test_a_head_for_pt_is_drawn(tmp_path: Path) -> None:
    started = load_file(earlier_run(tmp_path) / WEIGHTS)
    training = {"pt_weight": 0.5, "start_from": tmp_path / "start"}
    made = configuration(tmp_path, training=training)
    found, drawn = starting_model(made).state_dict(), build_model(made).state_dict()
    for name, weight in found.items():
        assert torch.equal(weight, started.get(name, drawn[name])), name
    assert found.keys() - started.keys() == {"decoder.pt_weight", "decoder.pt_bias"}


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"model": {"hidden": 8, "layers": 2, "in_out": False}}, "set model.in_out=true"),
        ({"model": {"name": "mlp", "hidden": 8}}, "'model.name=\"interaction\"' model.layers=2"),
        ({"data": {"node_features": ["pulse", "r"]}}, 'data.node_features=["r", "pulse"]'),
        ({"data": {}}, 'data.node_features=["r", "pulse"]'),
    ],
)
def test_another_model_is_refused_with_the_settings(
    sections: dict[str, Any], said: str, tmp_path: Path
) -> None:
    start = earlier_run(tmp_path)
    made = configuration(tmp_path, training={"start_from": start}, **sections)
    with pytest.raises(InputError) as raised:
        starting_model(made)
    assert str(raised.value).startswith(f"training.start_from={start}: its model is another; ")
    assert said in str(raised.value)


def test_how_it_is_computed_may_differ(tmp_path: Path) -> None:
    start = earlier_run(tmp_path)
    computed = {"hidden": 8, "layers": 2, "recompute": "none", "precision": "bf16"}
    made = configuration(tmp_path, model=computed, training={"start_from": start})
    assert by_key(made)["model.precision"] == '"bf16"'
    starting_model(made)


def test_an_unfinished_run_names_the_run_that_it_started_from(tmp_path: Path) -> None:
    made = configuration(tmp_path, training={"start_from": tmp_path / "start"})
    with pytest.raises(InputError, match=r"^training\.start_from=.*start: .*this run has ended"):
        earlier_events(made)
    earlier_run(tmp_path)
    assert earlier_events(made) == ("far away",)


@pytest.mark.parametrize("missing", [WEIGHTS, DESCRIPTION])
def test_a_run_without_a_model_is_refused(missing: str, tmp_path: Path) -> None:
    start = earlier_run(tmp_path)
    (start / missing).unlink()
    with pytest.raises(InputError, match=f"{missing}: no such file"):
        starting_model(configuration(tmp_path, training={"start_from": start}))
