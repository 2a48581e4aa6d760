"""Muon for hidden matrices and AdamW for all else, at one rate, against torch's two optimizers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from bigtrk.config import apply_overrides
from bigtrk.errors import InputError
from bigtrk.models.interaction_gnn import InteractionGNN, InteractionGNNConfig
from bigtrk.parallel.engines.optimizers import make_optimizer, set_rates
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.records.run_folder import write_run_record
from bigtrk.training.checkpoint.folder import resumed_configuration
from bigtrk.training.settings import Configuration
from tests.reports.run_folders import run_record

SETTINGS = OptimizerSettings(name="muon", lr=0.1, weight_decay=0.05)
RATES = (0.01, 0.03, 0.0, 0.02)
FACTORS = {"layers.0.*": 0.5, "node_encoder.*": 0.0}


def model(hidden: int = 16) -> InteractionGNN:
    torch.manual_seed(0)
    return InteractionGNN(InteractionGNNConfig(hidden=hidden, layers=2), 3, 4)


def give_gradients(of: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in of.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def by_two_optimizers() -> dict[str, Tensor]:
    """Trains by torch's own, one for each parameter."""
    made = model()
    optimizers: list[tuple[Optimizer, float]] = []
    for name, parameter in made.named_parameters():
        fitting = [factor for start, factor in FACTORS.items() if name.startswith(start[:-1])]
        factor = fitting[0] if fitting else 1.0
        decay: dict[str, Any] = {"weight_decay": SETTINGS.weight_decay}
        if parameter.ndim == 2 and min(parameter.shape) >= 16:
            one: Optimizer = Muon([parameter], adjust_lr_fn="match_rms_adamw", **decay)
        else:
            one = AdamW([parameter], **decay)
        optimizers.append((one, factor))
    for step, rate in enumerate(RATES):
        give_gradients(made, step)
        for one, factor in optimizers:
            one.param_groups[0]["lr"] = factor * rate
            one.step()
    return dict(made.named_parameters())


def test_weights_are_those_of_torch_s_two_optimizers() -> None:
    made = model()
    optimizer = make_optimizer(made, SETTINGS, FACTORS)
    for step, rate in enumerate(RATES):
        give_gradients(made, step)
        set_rates(optimizer, rate)
        optimizer.step()
    expected = by_two_optimizers()
    start = dict(model().named_parameters())
    matrices = [name for name, one in expected.items() if one.ndim == 2 and min(one.shape) >= 16]
    assert {name.split(".")[0] for name in matrices} >= {"node_encoder", "layers", "decoder"}
    for name, weight in made.named_parameters():
        assert torch.equal(weight, expected[name]), name
        assert torch.equal(weight, start[name]) == name.startswith("node_encoder."), name
        assert optimizer.state[weight]["step"] == len(RATES)


def test_a_parameter_without_gradient_stays() -> None:
    made = model()
    optimizer = make_optimizer(made, SETTINGS, {})
    before = {name: one.detach().clone() for name, one in made.named_parameters()}
    give_gradients(made, 0)
    for name, parameter in made.named_parameters():
        if name.startswith("layers.1."):
            parameter.grad = None
    optimizer.step()
    for name, parameter in made.named_parameters():
        assert torch.equal(parameter, before[name]) == name.startswith("layers.1."), name


def test_a_model_without_hidden_matrices_is_refused() -> None:
    with pytest.raises(InputError, match="needs a matrix of 16 or more rows"):
        make_optimizer(model(hidden=8), SETTINGS, {})


@pytest.mark.parametrize("engine", ["fsdp2", "deepspeed"])
def test_engines_that_split_matrices_are_refused(engine: str) -> None:
    asked = ["optimizer.name=muon", f"engine.name={engine}"]
    with pytest.raises(InputError, match=f"with engine.name={engine} ranks update parts"):
        apply_overrides(Configuration, {"data": {"train": ["graphs"]}}, asked, "here")


def test_a_run_goes_on_with_its_own_optimizer(tmp_path: Path) -> None:
    configuration = Configuration.model_validate({"data": {"train": ["graphs"]}})
    write_run_record(tmp_path, run_record(config=configuration.model_dump(mode="json")))
    with pytest.raises(InputError, match="a resumed run keeps its optimizer"):
        resumed_configuration(tmp_path, ["data.train=graphs", "optimizer.name=muon"])
    with pytest.raises(InputError, match=r"or change only training.epochs, .*, all of engine, "):
        resumed_configuration(tmp_path, ["data.train=others"])
