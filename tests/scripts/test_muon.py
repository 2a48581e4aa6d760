"""AdamW and Muon at equal time: which weights Muon updates, and how."""

import torch
from torch import nn

from bigtrk.models.interaction_gnn import InteractionGNN, InteractionGNNConfig
from bigtrk.parallel.settings import OptimizerSettings
from scripts.physics.muon import MuonAndAdamW

RATE = 0.01


def steps(model: nn.Module, rates: list[float]) -> dict[str, torch.Tensor]:
    """Returns how far each parameter has come after each rate's step by one gradient."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = MuonAndAdamW(model, OptimizerSettings(lr=RATE, weight_decay=0.0))
    generator = torch.Generator().manual_seed(1)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator)
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate  # as the engine sets it
        optimizer.step()
    return {name: p.detach() - before[name] for name, p in model.named_parameters()}


def model() -> InteractionGNN:
    torch.manual_seed(0)
    return InteractionGNN(InteractionGNNConfig(hidden=32, layers=2), 3, 4)


def test_updates_of_hidden_matrices_alone_are_orthogonal() -> None:
    moved = steps(model(), [RATE])
    hidden = {name for name, step in moved.items() if step.ndim == 2 and min(step.shape) > 8}
    assert {name.split(".")[0] for name in moved.keys() - hidden} >= {"node_encoder", "decoder"}
    for name, step in moved.items():
        if name in hidden:
            values = torch.linalg.svdvals(step)
            assert values.max() < 2 * values.min(), name
        else:  # AdamW's first step is its rate, whatever the gradient
            torch.testing.assert_close(step.abs(), torch.full_like(step, RATE), rtol=1e-4, atol=0)


def test_one_rate_is_that_of_both() -> None:
    moved, still = steps(model(), [RATE, 0.0]), steps(model(), [RATE])
    assert all(torch.equal(step, still[name]) for name, step in moved.items())
