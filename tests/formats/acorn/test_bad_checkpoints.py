"""Checkpoints that cannot be imported end in one line, and leave nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.formats.acorn.acorn_model import TWELVE, UNITS, AcornModel, checkpoint, settings
from tests.programs import Run, refusal_of

Write = Callable[[Path], object]


def good(path: Path, **changed: Any) -> Path:
    """A checkpoint of a sound model, whose settings say something else of it."""
    return checkpoint(path, settings(**changed), AcornModel.drawn(0, settings()).state_dict())


def with_settings(**changed: Any) -> Write:
    return lambda path: good(path, **changed)


def without(key: str) -> Write:
    content = settings()
    del content[key]
    return lambda path: checkpoint(path, content, AcornModel.drawn(0, settings()).state_dict())


def other_weights(change: Callable[[dict[str, Any]], object]) -> Write:
    def write(path: Path) -> None:
        state = AcornModel.drawn(0, settings()).state_dict()
        change(state)
        checkpoint(path, settings(), state)

    return write


def truncated(path: Path) -> None:
    path.write_bytes(good(path).read_bytes()[:-200])


def not_finite(state: dict[str, Any]) -> None:
    state["edge_decoder.0.weight"][2, 3] = torch.nan


EDGE_NORM = "batchnorm=True, as in CTD_2023's models"
CASES: dict[str, tuple[Write, str]] = {
    "truncated": (truncated, "is damaged or was not made by torch.save"),
    "missing": (lambda path: path.exists(), "no such file"),
    "no settings": (lambda path: checkpoint(path, None, {}), "has no hyper_parameters"),
    "no weights": (lambda path: checkpoint(path, settings(), None), "has no state_dict"),
    "no hidden": (without("hidden"), "hyper_parameters: key 'hidden' is missing"),
    "no weight": (
        other_weights(lambda state: state.pop("edge_network.1.3.bias")),
        "its state_dict lacks edge_network.1.3.bias; name another checkpoint; docs/acorn.md lists",
    ),
    "another weight": (
        other_weights(lambda state: state.update({"embedding.0.weight": torch.ones(1)})),
        "its state_dict has embedding.0.weight, which a model of its hyper_parameters lacks",
    ),
    "number for a weight": (
        other_weights(lambda state: state.update({"edge_decoder.0.bias": 1.0})),
        "edge_decoder.0.bias in its state_dict is not a tensor of weights",
    ),
    "not finite": (other_weights(not_finite), "is not finite; name an earlier checkpoint of the"),
    "batchnorm": (with_settings(batchnorm=True), EDGE_NORM),
    "aggr: add": (with_settings(aggr="add"), "averages messages, but bigtrk's model sums them"),
    "11 scales": (with_settings(node_scales=UNITS[:11]), "node_scales: 11 of 12"),
    "other order": (with_settings(node_features=TWELVE[::-1]), "in this order"),
    "clusters scaled otherwise": (
        with_settings(node_scales=[*UNITS[:11], 2.0]),
        "copies a hit's columns over its clusters'",
    ),
    "unknown feature": (
        with_settings(node_features=["r", "lx"], node_scales=[1.0, 1.0]),
        "node_features: 'lx' is none of",
    ),
    "scale 0": (with_settings(node_scales=[0.0, *UNITS[1:]]), "node_scales.0"),
    "unknown edge feature": (with_settings(edge_features=["dR"]), "edge_features: 'dR' is none"),
    "activation": (with_settings(hidden_activation="SiLU"), "hidden_activation=SiLU"),
    "unequal layers": (with_settings(n_edge_decoder_layers=3), "are 2, 2, 3"),
    "half recurrent": (with_settings(node_net_recurrent=True), "or of neither"),
    "other width": (
        with_settings(hidden=60_000),
        "[16, 12], but its hyper_parameters give [60000, 12]",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_checkpoints_end_in_one_line(case: str, tmp_path: Path, run_program: Run) -> None:
    write, said = CASES[case]
    file, out = tmp_path / "bad.ckpt", tmp_path / "run"
    write(file)
    before = sorted(tmp_path.iterdir())
    error = refusal_of(run_program(["bigtrk", "import-model", "acorn", str(file), str(out)]))
    assert error.startswith(f"bigtrk: error: {file}: ")
    assert error.count("\n") == 1
    assert said in error
    assert sorted(tmp_path.iterdir()) == before, "code in it was run, or something is left"


def test_what_is_there_is_kept(tmp_path: Path, run_program: Run) -> None:
    file, out = good(tmp_path / "good.ckpt"), tmp_path / "out"
    out.mkdir()
    (out / "run.json").write_text("precious")
    command = ["bigtrk", "import-model", "acorn", str(file), str(out)]
    assert f"{out}: exists already" in refusal_of(run_program(command))
    assert [path.name for path in out.iterdir()] == ["run.json"]
