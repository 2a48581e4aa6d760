"""A training that starts from a run's weights, with their scales, and remembers their events."""

import io
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.models.settings import EdgeMLPConfig
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run import MeasuredScales
from bigtrk.records.run_folder import read_run_record
from bigtrk.training.data.event_source import split_validation
from bigtrk.training.evaluation.evaluate import load_evaluated
from bigtrk.training.model_files import (
    build_model,
    describe,
    earlier_description,
    earlier_events,
    read_description,
    starting_model,
)
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS, save_model
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import random_graph
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, train, write_events
from tests.present import present

MEASURED = MeasuredScales(nodes={"pulse": (7.0, 2.0)})
# AdamW's steps are then too small to change a float32.
STANDSTILL = {"lr": 1e-30}


SMALL = {"hidden": 8, "layers": 2}
OTHERS = ("FSDP2", "zero1", "zero3")  # engines


def configuration(folder: Path, start: Path | None = None, **sections: Any) -> Configuration:
    model = {**SMALL, **sections.pop("model", {}), "init_from": start}
    return Configuration.model_validate(
        {
            "data": {"train": [folder / "graphs"], "node_features": ["r", "pulse"]},
            "model": model,
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


def train_and_resume(ranks: Ranks, folder: Path, engine: str) -> set[str]:
    """Trains an epoch from the weights of `start`, then two more without them; the events that the
    model of its checkpoint was trained on.
    """
    training = {"epochs": 1, "seed": 3}
    made = configuration(folder, folder / "start", training=training, engine=ENGINES[engine])
    run = Path(train(ranks, made))
    if ranks.is_first:
        (run / WEIGHTS).rename(run / "first")
    torch.distributed.barrier()
    seen = set(load_evaluated(run, ranks).trained_on)
    if ranks.is_first:
        (folder / "start" / WEIGHTS).unlink()
    train(ranks, made, run)
    return seen


@pytest.mark.parametrize(
    "engine", ["DDP", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_a_training_goes_on_with_another_runs_weights(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], engine: str
) -> None:
    write_events(tmp_path, make=with_pulse)
    started = load_file(earlier_run(tmp_path) / WEIGHTS)
    seen = run_ranks(2, train_and_resume, tmp_path, engine)[0]
    n = len(started)
    said = f"model.init_from={tmp_path / 'start'}: starts from its {n} tensors of weights\n"
    assert capfd.readouterr().out.count(said) == 1
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
    """Returns the warning of a training that validates on an event which trained its start."""
    made = configuration(folder, folder / "start")
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
    assert said.count("1 of the 1 validation events trained the weights") == 1
    assert "set data.validation to other events" in said


def test_a_file_of_weights_is_taken(tmp_path: Path) -> None:
    run = earlier_run(tmp_path)
    beside = configuration(tmp_path, run / WEIGHTS)
    assert earlier_events(beside) == ("far away",)
    assert present(earlier_description(beside)).measured == MEASURED
    alone = Path(shutil.copy(run / WEIGHTS, tmp_path / "weights.safetensors"))
    made = configuration(tmp_path, alone)
    started = load_file(run / WEIGHTS)
    for one in (beside, made):
        found = starting_model(one)[0].state_dict()
        assert all(torch.equal(found[name], started[name]) for name in found)
    assert str(starting_model(made)[1]).endswith("so test on events that surely did not")
    assert earlier_events(made) == ()
    assert earlier_description(made) is None
    alone.unlink()
    with pytest.raises(InputError, match=r"weights\.safetensors: no such file"):
        starting_model(made)
    with pytest.raises(InputError, match=r"weights\.safetensors: no such file.*this run has ended"):
        earlier_events(made)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda w: {name: w[name] for name in list(w)[1:]}, 'Missing key(s) in state_dict: "node_'),
        (lambda w: {**w, "head.new": torch.ones(2)}, 'Unexpected key(s) in state_dict: "head.new"'),
        (lambda w: {**w, next(iter(w)): torch.ones(2)}, "size mismatch for node_encoder"),
        (lambda w: {name: x.half() for name, x in w.items()}, "is F16; make it F32, or train"),
    ],
)
def test_weights_that_do_not_fit_are_named(
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    complaint: str,
    tmp_path: Path,
) -> None:
    file = tmp_path / "weights.safetensors"
    made = configuration(tmp_path, file)
    save_file(change(build_model(made).state_dict()), file)
    with pytest.raises(InputError, match=re.escape(complaint)):
        starting_model(made)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"model": {"in_out": False}}, "set model.in_out=true"),
        ({"data": {"node_features": ["pulse", "r"]}}, 'data.node_features=["r", "pulse"]'),
        ({"data": {}}, 'data.node_features=["r", "pulse"]'),
        ({"training": {"pt_weight": 0.5}}, '"decoder.pt_weight", "decoder.pt_bias"'),
    ],
)
def test_another_model_is_refused_with_the_settings(
    sections: dict[str, Any], said: str, tmp_path: Path
) -> None:
    start = earlier_run(tmp_path)
    with pytest.raises(InputError) as raised:
        starting_model(configuration(tmp_path, start, **sections))
    assert str(raised.value).startswith(f"model.init_from={start}: its ")
    assert said in str(raised.value)


def test_starts_that_hold_no_model_or_another_kind_are_refused(tmp_path: Path) -> None:
    made = configuration(tmp_path, tmp_path / "start")
    with pytest.raises(InputError, match=r"^model\.init_from=.*start: .*this run has ended"):
        earlier_events(made)
    start = earlier_run(tmp_path)
    other = made.model_copy(update={"model": EdgeMLPConfig(hidden=8, init_from=start)})
    with pytest.raises(InputError, match=r"'model\.name=\"interaction\"' model\.layers=2"):
        starting_model(other)
    # Computing it in another way makes it no other model.
    starting_model(configuration(tmp_path, start, model={"recompute": "none", "precision": "bf16"}))
    assert earlier_events(made) == ("far away",)
    for missing in (DESCRIPTION, WEIGHTS):
        (start / missing).rename(tmp_path / "kept")
        with pytest.raises(InputError, match=f"{missing}: no such file"):
            starting_model(made)
        (tmp_path / "kept").rename(start / missing)
    (tmp_path / "gnn.ckpt").touch()
    with pytest.raises(InputError, match=r"gnn\.ckpt: is no \.safetensors .* import-model acorn"):
        starting_model(configuration(tmp_path, tmp_path / "gnn.ckpt"))
