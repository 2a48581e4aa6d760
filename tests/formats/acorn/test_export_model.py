"""A run's model, exported, gives in acorn what it gives here; what acorn cannot hold is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.formats.acorn.model_files import export_model, import_model, read_model
from bigtrk.records.run import MeasuredScales
from bigtrk.training.model_files import StoredModel, build_model, describe, load_model
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration
from tests.formats.acorn.acorn_model import (
    CLUSTERS,
    TWELVE,
    AcornModel,
    checkpoint,
    hits,
    our_scores,
    settings,
)
from tests.programs import Run, refusal_of


def trained(run: Path, **sections: Any) -> StoredModel:
    """A run of ours that reads acorn's features, whose clusters' scales were measured."""
    sections.setdefault("data", {"node_features": TWELVE})
    sections.setdefault("model", {"hidden": 8, "layers": 3})
    configuration = Configuration.model_validate(sections)
    measured = MeasuredScales(
        nodes={
            name: (0.3 * i - 1, 0.5 + i)
            for i, name in enumerate(CLUSTERS)
            if name in configuration.data.node_features
        },
        edges=dict.fromkeys({"length"} & {*configuration.data.edge_features}, (0.0, 2.0)),
    )
    model = build_model(configuration)
    run.mkdir()
    save_model(run, model.state_dict(), describe(configuration, [], measured))
    return load_model(run)


MODELS: list[dict[str, Any]] = [
    {},
    {"training": {"pt_weight": 0.5}, "model": {"hidden": 8, "layers": 1, "mlp_layers": 3}},
    {"model": {"hidden": 8, "layers": 3, "mlp_layers": 1, "in_out": False, "concatenate": False}},
    {"data": {"node_features": TWELVE, "edge_features": ["rphislope", "deta"]}},
]


@pytest.mark.parametrize("sections", MODELS, ids=str)
def test_acorn_computes_what_the_run_does(sections: dict[str, Any], tmp_path: Path) -> None:
    """Acorn's names and scaled features; measured means go into the first bias."""
    ours, graph = trained(tmp_path / "run", **sections), hits(1)
    export_model(tmp_path / "run", tmp_path / "a.ckpt")
    # It holds nothing but tensors and plain values.
    content = torch.load(tmp_path / "a.ckpt", weights_only=True)
    acorn = AcornModel.of(content["hyper_parameters"], content["state_dict"])
    torch.testing.assert_close(acorn.scores(graph), our_scores(ours, graph), rtol=0, atol=1e-6)
    again = our_scores(read_model(tmp_path / "a.ckpt"), graph)
    torch.testing.assert_close(acorn.scores(graph), again, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("recurrent", "prefixed"), [(False, True), (True, False)])
def test_a_checkpoint_comes_back(recurrent: bool, prefixed: bool, tmp_path: Path) -> None:
    """Each weight and each setting of the model, except the network that nothing reads."""
    content = settings(node_net_recurrent=recurrent, edge_net_recurrent=recurrent)
    if prefixed:
        content["node_features"] = [f"hit_{name}" for name in content["node_features"]]
        content["edge_features"] = [f"edge_{name}" for name in content["edge_features"]]
    weights = AcornModel.drawn(0, content).state_dict()
    import_model(checkpoint(tmp_path / "a.ckpt", content, weights), tmp_path / "run")
    export_model(tmp_path / "run", tmp_path / "b.ckpt")
    found = torch.load(tmp_path / "b.ckpt", weights_only=True)
    assert found.keys() == {
        *("epoch", "global_step", "pytorch-lightning_version"),
        *("state_dict", "hparams_name", "hyper_parameters"),
    }
    assert found["state_dict"].keys() == weights.keys()
    for name, weight in found["state_dict"].items():
        unread = not recurrent and name.startswith("node_network.2.")
        expected = torch.zeros_like(weights[name]) if unread else weights[name]
        torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-7)
    written = found["hyper_parameters"]
    assert written.pop("variable_with_prefix")
    named = {"node_features": "hit_", "edge_features": "edge_"}
    for key, prefix in named.items():
        plain = [name.removeprefix(prefix) for name in content.pop(key)]
        assert written.pop(key) == [f"{prefix}{name}" for name in plain]
    for key, value in written.items():
        new = {"aggr": "sum", "output_layer_norm": False}
        new["edge_output_transform_final_layer_norm"] = False
        assert value == (content | new)[key], key


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "attention": ({"model": {"name": "attention"}}, "acorn lacks model.name=attention"),
    "four features": (
        {"data": {"node_features": TWELVE[:4]}},
        "node features r, phi, z, eta, but acorn's models read r, phi, z, eta, cluster_r_1",
    ),
    "no edge feature": (
        {"data": {"node_features": TWELVE, "edge_features": []}},
        "reads no features of edges, but acorn's models read one or more of dr, dphi, dz",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_acorn_cannot_hold_is_refused(case: str, tmp_path: Path, run_program: Run) -> None:
    sections, said = REFUSED[case]
    run = tmp_path / "run"
    trained(run, **sections)
    command = ["bigtrk", "export", "acorn-model", str(run), str(tmp_path / "a.ckpt")]
    error = refusal_of(run_program(command))
    assert error.startswith(f"bigtrk: error: {run}: ")
    assert said in error
    assert f"; export scores instead: 'bigtrk export acorn GRAPHS OUT --run {run}'" in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [run]


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    (tmp_path / "a.ckpt").write_text("precious")
    with pytest.raises(InputError, match=r"a\.ckpt: exists already"):
        export_model(tmp_path / "run", tmp_path / "a.ckpt")
    assert (tmp_path / "a.ckpt").read_text() == "precious"
    with pytest.raises(InputError, match=r"absent/b\.ckpt: No such file"):
        export_model(tmp_path / "run", tmp_path / "absent" / "b.ckpt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: holds no run\.json"):
        export_model(tmp_path / "empty", tmp_path / "c.ckpt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ckpt", "empty", "run"]
