"""Checkpoints that cannot be imported end in one line, and leave nothing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.formats.acorn.acorn_model import TWELVE, UNITS, AcornModel, checkpoint, settings
from tests.programs import run_here

Write = Callable[[Path], object]


class Code:
    """A pickle that calls something when it is read."""

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.made_by = (call, arguments)

    def __reduce__(self) -> Any:
        return self.made_by


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


def with_code(path: Path) -> None:
    state = AcornModel.drawn(0, settings()).state_dict()
    checkpoint(path, settings(), state, callbacks=Code(os.mkdir, str(path.with_name("trace"))))


def truncated(path: Path) -> None:
    path.write_bytes(good(path).read_bytes()[:-200])


def flipped(path: Path) -> None:
    """A wrong byte in a tensor, which torch itself would not see."""
    content = bytearray(good(path).read_bytes())
    value = AcornModel.drawn(0, settings()).state_dict()["node_encoder.0.bias"]
    content[content.index(value.numpy().tobytes())] ^= 1
    path.write_bytes(content)


def not_finite(state: dict[str, Any]) -> None:
    state["edge_decoder.0.weight"][2, 3] = torch.nan


OLD = {"_use_new_zipfile_serialization": False}
EDGE_NORM = "batchnorm=True, as in CTD_2023's models"
CASES: dict[str, tuple[Write, str]] = {
    "code": (with_code, "asks for posix.mkdir, and nothing but tensors is made"),
    "truncated": (truncated, "is no checkpoint that torch.save wrote, or damaged"),
    "flipped": (flipped, "is no checkpoint that torch.save wrote, or damaged"),
    "text": (lambda path: path.write_text("hidden: 8"), "is no checkpoint that torch.save wrote"),
    "empty": (lambda path: path.write_bytes(b""), "is no checkpoint that torch.save wrote"),
    "missing": (lambda path: path.exists(), "no such file"),
    "old": (lambda path: torch.save({}, path, **OLD), "save had before torch 1.6; load it with"),
    "a list": (lambda path: torch.save([1], path), "has no hyper_parameters"),
    "no settings": (lambda path: checkpoint(path, None, {}), "has no hyper_parameters"),
    "no weights": (lambda path: checkpoint(path, settings(), None), "has no state_dict"),
    "no hidden": (without("hidden"), "hyper_parameters: key 'hidden' is missing"),
    "no scales": (without("node_scales"), "key 'node_scales' is missing"),
    "no weight": (
        other_weights(lambda state: state.pop("edge_network.1.3.bias")),
        "nothing for layers.1.edge_mlp_1_bias",
    ),
    "another weight": (
        other_weights(lambda state: state.update({"embedding.0.weight": torch.ones(1)})),
        "embedding.0.weight is no parameter",
    ),
    "number for a weight": (
        other_weights(lambda state: state.update({"edge_decoder.0.bias": 1.0})),
        "edge_decoder.0.bias is no tensor of weights",
    ),
    "not finite": (other_weights(not_finite), "edge_decoder.0.weight is not finite"),
    "batchnorm": (with_settings(batchnorm=True), EDGE_NORM),
    "output_batch_norm": (with_settings(output_batch_norm=True), "output_batch_norm=True"),
    "output_layer_norm": (with_settings(output_layer_norm=True), "output_layer_norm=True"),
    "no layernorm": (with_settings(layernorm=False), "layernorm=False"),
    "aggr: add": (with_settings(aggr="add"), "takes the mean of messages for every aggr but sum"),
    "aggr: null": (with_settings(aggr=None), "takes the mean of messages for every aggr but sum"),
    "11 features": (
        with_settings(node_features=TWELVE[:11], node_scales=UNITS[:11]),
        "with clusters acorn reads r, phi, z, eta, cluster_r_1",
    ),
    "11 scales": (with_settings(node_scales=UNITS[:11]), "node_scales: 11 of 12"),
    "other order": (with_settings(node_features=TWELVE[::-1]), "in this order"),
    "clusters scaled otherwise": (
        with_settings(node_scales=[*UNITS[:11], 2.0]),
        "copies a hit's columns over its clusters'",
    ),
    "fewer features": (
        with_settings(node_features=TWELVE[:4], node_scales=UNITS[:4]),
        "node_encoder.mlp_0_weight has shape [16, 12], the model [16, 4]",
    ),
    "unknown feature": (
        with_settings(node_features=["r", "lx"], node_scales=[1.0, 1.0]),
        "node_features: 'lx' is none of",
    ),
    "a feature twice": (
        with_settings(node_features=["r", "r"], node_scales=[1.0, 1.0]),
        "one is there twice",
    ),
    "scale 0": (with_settings(node_scales=[0.0, *UNITS[1:]]), "node_scales.0"),
    "unknown edge feature": (with_settings(edge_features=["dR"]), "edge_features: 'dR' is none"),
    "no edge features": (with_settings(edge_features=[]), "edge_features: there are none"),
    "activation": (with_settings(hidden_activation="SiLU"), "hidden_activation=SiLU"),
    "output activation": (with_settings(output_activation=None), "output_activation=None"),
    "sigmoid": (
        with_settings(edge_output_transform_final_activation="Sigmoid"),
        "edge_output_transform_final_activation=Sigmoid",
    ),
    "unequal layers": (with_settings(n_edge_decoder_layers=3), "are 2, 2, 3"),
    "half recurrent": (with_settings(node_net_recurrent=True), "or of neither"),
    "other width": (with_settings(hidden=60_000), "has shape [16, 12], the model [60000, 12]"),
    "text for a width": (with_settings(hidden="wide"), "hidden"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_checkpoints_end_in_one_line(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write, said = CASES[case]
    file, out = tmp_path / "bad.ckpt", tmp_path / "run"
    write(file)
    before = sorted(tmp_path.iterdir())
    status, printed, error = run_here(
        ["bigtrk", "import-model", "acorn", str(file), str(out)], monkeypatch, capsys
    )
    assert (status, printed) == (2, "")
    assert error.startswith(f"bigtrk: error: {file}: ")
    assert error.count("\n") == 1
    assert said in error
    assert sorted(tmp_path.iterdir()) == before, "code in it was run, or something is left"


@pytest.mark.parametrize("there", ["folder", "file", "link"])
def test_what_is_there_is_kept(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = good(tmp_path / "good.ckpt"), tmp_path / "out"
    if there == "folder":
        out.mkdir()
        (out / "run.json").write_text("precious")
    elif there == "file":
        out.write_text("precious")
    else:
        out.symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.iterdir())
    status, _, error = run_here(
        ["bigtrk", "import-model", "acorn", str(file), str(out)], monkeypatch, capsys
    )
    assert status == 2
    assert f"{out}: holds something already" in error
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    file = good(tmp_path / "good.ckpt")
    monkeypatch.setattr("bigtrk.graphs.storage.tensor_files.save_file", full)
    status, _, error = run_here(
        ["bigtrk", "import-model", "acorn", str(file), str(tmp_path / "run")], monkeypatch, capsys
    )
    assert status == 2
    assert "No space left on device" in error
    assert list(tmp_path.iterdir()) == [file]
