"""Acorn's own weights give acorn's own logits, loss and gradients."""

from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.errors import InputError
from bigtrk.formats.acorn.model_files import load_acorn_weights
from bigtrk.models.edges.states import Recompute
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import InteractionGNNConfig
from tests.formats.acorn.golden import Golden, read_golden


@pytest.fixture(scope="module")
def golden(testdata: Path) -> Golden:
    return read_golden(testdata)


def section(golden: Golden, name: str) -> Golden:
    prefix = name + "."
    return {k.removeprefix(prefix): v for k, v in golden.items() if k.startswith(prefix)}


def model_of(state: Golden, **options: object) -> InteractionGNN:
    settings = {"hidden": 16, "layers": 3, "mlp_layers": 3, **options}
    model = InteractionGNN(InteractionGNNConfig.model_validate(settings), 12, 6)
    load_acorn_weights(model, state)
    return model


def logits_of(model: InteractionGNN, golden: Golden) -> Tensor:
    x = golden["in.node_features"]
    logits: Tensor = model(
        x, golden["in.edge_features"], golden["in.edge_index"], len(x), no_exchange
    )
    return logits


@pytest.mark.parametrize("recompute", get_args(Recompute))
def test_logits_loss_and_every_gradient(golden: Golden, recompute: str) -> None:
    model = model_of(section(golden, "param"), recompute=recompute)
    logits = logits_of(model, golden)
    torch.testing.assert_close(logits, golden["out.logits"], rtol=0, atol=2e-6)
    loss = binary_cross_entropy_with_logits(logits, golden["in.y"])
    assert loss.item() == pytest.approx(golden["out.loss"].item(), rel=1e-6)
    loss.backward()
    # acorn's gradients, brought to our names by the same path as its weights.
    expected = model_of(section(golden, "grad"))
    wanted = expected.state_dict()
    assert len(wanted) == len(section(golden, "grad"))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        scale = float(wanted[name].abs().max())
        assert float((parameter.grad - wanted[name]).abs().max()) < 1e-5 * scale, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 2}, "has edge_network.2.*, which a model of its hyper_parameters lacks"),
        ({"mlp_layers": 2}, "which a model of its hyper_parameters lacks"),
        ({"hidden": 8}, r"shape \[16, 12\], but its hyper_parameters give \[8, 12\]"),
        ({"in_out": False}, "but its hyper_parameters give"),
        ({"shared_weights": True}, "which a model of its hyper_parameters lacks"),
    ],
)
def test_other_settings_are_an_error(
    golden: Golden, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        model_of(section(golden, "param"), **options)


@pytest.mark.parametrize("name", ["node_encoder.1.weight", "edge_output_transform.6.bias"])
def test_a_leftover_is_an_error(golden: Golden, name: str) -> None:
    state = {**section(golden, "param"), name: torch.zeros(1)}
    with pytest.raises(InputError, match=f"has {name}, which a model of its hyper_param.* lacks"):
        model_of(state)
