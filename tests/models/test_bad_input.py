"""Input out of the ordinary: the right result or a clear error."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bigtrk.formats.acorn.model_files import load_acorn_weights
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import InteractionGNNConfig
from tests.oracle.interaction_gnn import ReferenceGNN

F, G, NODES, EDGES = 4, 6, 30, 200
each_precision = pytest.mark.parametrize("precision", ["fp32", "bf16"])
TOLERANCE = {"fp32": 2e-5, "bf16": 0.15}
Inputs = tuple[Tensor, Tensor, Tensor]


def make_inputs(n_edges: int = EDGES) -> Inputs:
    generator = torch.Generator().manual_seed(n_edges)
    edge_index = torch.randint(NODES, (2, n_edges), generator=generator)
    x = torch.randn(NODES, F, generator=generator)
    return x, torch.randn(n_edges, G, generator=generator), edge_index


def make_models(**options: Any) -> tuple[InteractionGNN, ReferenceGNN]:
    """The model, and the plain one of the same weights in float64."""
    config = InteractionGNNConfig.model_validate({"hidden": 8, "layers": 3, **options})
    torch.manual_seed(0)
    reference = ReferenceGNN(config, F, G)
    model = InteractionGNN(config, F, G)
    load_acorn_weights(model, reference.state_dict())
    return model, reference.double()


def logits_of(model: InteractionGNN, inputs: Inputs) -> Tensor:
    logits: Tensor = model(*inputs, len(inputs[0]), no_exchange)
    return logits


def gradients(model: nn.Module, logits: Tensor) -> dict[str, Tensor]:
    """Gradients of a loss in which every edge counts differently."""
    (logits * torch.linspace(1, 2, len(logits))).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def flat(gradient_of: dict[str, Tensor]) -> Tensor:
    return torch.cat([gradient_of[name].flatten() for name in sorted(gradient_of)]).double()


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.detach() - expected.detach()).norm() / expected.detach().norm())


@pytest.mark.parametrize("end", [-1, NODES, 2**40])
@pytest.mark.parametrize("row", [0, 1])
def test_an_edge_out_of_range(end: int, row: int) -> None:
    model, _ = make_models()
    inputs = make_inputs()
    inputs[2][row, 7] = end
    with pytest.raises(IndexError, match=f"an edge ends at node {end}, outside of the 30 nodes"):
        logits_of(model, inputs)
    with pytest.raises(IndexError, match=r"edge_index is torch\.int32, not torch\.int64"):
        logits_of(model, (*inputs[:2], inputs[2].int()))


@each_precision
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("of_nodes", [True, False])
def test_what_is_not_finite_stays_visible(precision: str, value: float, of_nodes: bool) -> None:
    """It shows in the logits, so that the loss is not finite and the step is refused."""
    model, _ = make_models(precision=precision)
    x, edge_features, edge_index = make_inputs()
    (x if of_nodes else edge_features)[3, 1] = value
    logits = logits_of(model, (x, edge_features, edge_index))
    touched = (edge_index == 3).any(dim=0) if of_nodes else torch.arange(EDGES) == 3
    assert touched.any()
    assert not logits[touched].isfinite().any()


@each_precision
@pytest.mark.parametrize(
    ("n_edges", "hidden"), [(EDGES, 6), (EDGES, 7), (EDGES, 100), (1, 8), (17, 8)]
)
def test_sizes_that_fill_no_vector_and_no_chunk(precision: str, n_edges: int, hidden: int) -> None:
    """Logits and the gradient, against the plain model in float64."""
    model, reference = make_models(precision=precision, hidden=hidden)
    inputs = make_inputs(n_edges)
    logits = logits_of(model, inputs)
    exact = reference(inputs[0].double(), inputs[1].double(), inputs[2])
    assert relative_error(logits, exact) < TOLERANCE[precision]
    found = gradients(model, logits)
    wanted, _ = make_models(precision=precision, hidden=hidden)
    load_acorn_weights(wanted, gradients(reference, exact))
    assert found.keys() == wanted.state_dict().keys()
    assert relative_error(flat(found), flat(wanted.state_dict())) < TOLERANCE[precision]
