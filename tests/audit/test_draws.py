"""Draws beside all mini-batches of a tiny event, each with the gradient of plain autograd."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bigtrk.audit.draws import Exact, draw_events, draw_mini_batches
from bigtrk.audit.gradients import exact_gradient, gradient_of
from bigtrk.audit.names import Way
from bigtrk.audit.subject import Subject
from bigtrk.errors import InputError
from bigtrk.graphs.sector import Sector
from bigtrk.records.audit import DrawnWay
from bigtrk.training.model_files import build_model
from tests.audit.small import PARTS, configuration, exact_of, plain_gradient, subject

DEPTH = 2
# One root to a mini-batch, and all edges of a node are followed: a mini-batch has no chance in it.
SHADOW = {"batch_size": 1, "depth": DEPTH, "fanout": 1000}
DRAWS = 200
pytestmark = pytest.mark.usefixtures("alone")


def audited(data: Path, events: int = 1, **sections: Any) -> tuple[Subject, nn.Module, Exact]:
    configured = configuration(data, sampling=SHADOW, **sections)
    found = subject(data / "sectors", configured, events)
    model = build_model(found.configuration)
    return found, model, exact_of(found, model)


def sector_gradients(found: Subject, model: nn.Module, way: Way) -> list[Tensor]:
    gradients = []
    for part in range(PARTS):
        sector = found.sources[0].read(part, PARTS)
        n_nodes = sector.n_nodes if way is Way.HALO else sector.n_owned
        edges = (sector.edge_index < n_nodes).all(dim=0).nonzero()[:, 0]
        counted = sector.edge_index[1, edges] < sector.n_owned
        gradients.append(plain_gradient(model, sector, torch.arange(n_nodes), edges, counted))
    return gradients


def shadow_gradients(found: Subject, model: nn.Module) -> list[Tensor]:
    whole = found.sources[0].read(0, 1)
    return [_shadow_gradient(model, whole, root) for root in range(whole.n_nodes)]


def _shadow_gradient(model: nn.Module, whole: Sector, root: int) -> Tensor:
    """Returns all edges among the nodes that lead to a root in so many hops."""
    touched = torch.arange(whole.n_nodes) == root
    for _ in range(DEPTH):
        into = touched[whole.edge_index[1]]
        touched[whole.edge_index[0, into]] = True
    edges = touched[whole.edge_index].all(dim=0).nonzero()[:, 0]
    if not len(edges):
        return torch.zeros(sum(weight.numel() for weight in model.parameters()))
    counted = torch.ones(len(edges), dtype=torch.bool)
    return plain_gradient(model, whole, touched.nonzero()[:, 0], edges, counted)


def whole_gradient(found: Subject, model: nn.Module, event: int) -> Tensor:
    whole = found.sources[event].read(0, 1)
    counted = torch.ones(whole.n_edges, dtype=torch.bool)
    nodes, edges = torch.arange(whole.n_nodes), torch.arange(whole.n_edges)
    return plain_gradient(model, whole, nodes, edges, counted)


def test_the_exact_gradient_is_that_of_plain_autograd(data: Path) -> None:
    found, model, exact = audited(data, events=3)
    plain = [whole_gradient(found, model, event) for event in range(3)]
    for mine, expected in zip(exact.gradients, plain, strict=True):
        torch.testing.assert_close(mine.values, expected, rtol=1e-4, atol=1e-6)
    assert [one.edges for one in exact.gradients] == [120] * 3
    torch.testing.assert_close(
        exact.mean, torch.stack(plain).double().mean(0), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("way", [Way.NAIVE, Way.HALO, Way.SHADOW])
def test_estimates_are_those_of_all_mini_batches(
    data: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bias and noise follow from the list of all mini-batches, of which each draw is one."""
    found, model, exact = audited(data)
    drawn: list[Tensor] = []
    record = recorded(way, found, model, exact, drawn, monkeypatch)
    listed = sector_gradients(found, model, way)
    if way is Way.SHADOW:
        listed = shadow_gradients(found, model)
    every = torch.stack(listed).double()
    distances = torch.cdist(torch.stack(drawn).double(), every)
    assert (distances.min(1).values < 1e-5 * every.norm(dim=1).max()).all()
    assert len(distances.argmin(1).unique()) > 0.9 * len(every.unique(dim=0))  # all are drawn
    expectation, target = every.mean(0), exact.mean
    square = target.square().sum()
    bias = (expectation - target).square().sum() / square
    noise = (every - expectation).square().sum(1).mean() / square
    within(record.whole.bias_squared, float(bias))
    within(record.whole.noise, float(noise))
    within(record.whole.variance, float(noise))
    cosines = torch.cosine_similarity(every, target[None])
    within(record.whole.cosine, float(cosines.mean()))
    assert record.whole.noise_scale == pytest.approx(
        float(noise * square / expectation.square().sum()), rel=0.4
    )
    for part, rows in exact.parts.items():
        of_part = (expectation - target)[rows].square().sum() / target[rows].square().sum()
        within(record.parts[part].bias_squared, float(of_part))


def recorded(
    way: Way,
    found: Subject,
    model: nn.Module,
    exact: Exact,
    drawn: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> DrawnWay:
    """Draws, and lists what was drawn."""

    def listing(*arguments: Any) -> Any:
        gradient = gradient_of(*arguments)
        drawn.append(gradient.values)
        return gradient

    monkeypatch.setattr("bigtrk.audit.draws.gradient_of", listing)
    return draw_mini_batches(way, found, model, exact, DRAWS, "test")


def within(found: Any, expected: float) -> None:
    """Checks an estimate against what is known, to four of its errors."""
    assert abs(found.value - expected) < 4 * found.error, (found, expected)
    assert found.error < 0.5 * max(abs(expected), 0.2)


def test_wedges_are_drawn_and_seeded(data: Path) -> None:
    found, model, exact = audited(data, events=3)
    one, again = (draw_mini_batches(Way.WEDGES, found, model, exact, 5, "test") for _ in range(2))
    assert one.model_copy(update={"seconds": 0.0}) == again.model_copy(update={"seconds": 0.0})
    other = subject(data / "sectors", configuration(data), 3, seed=1)
    assert draw_mini_batches(Way.WEDGES, other, model, exact, 5, "test").whole != one.whole
    assert 0 < one.edges < one.event_edges


def test_whole_events_are_draws_of_each_other(data: Path) -> None:
    _, _, exact = audited(data, events=3)
    record = draw_events(exact)
    gradients = torch.stack([one.values for one in exact.gradients]).double()
    spread = gradients.var(dim=0).sum() / exact.mean.square().sum()
    assert record.whole.noise is not None
    assert record.whole.noise.value == pytest.approx(float(spread))
    assert record.whole.bias_squared is not None
    assert record.whole.bias_squared.value == 0
    assert (record.draws, record.edges) == (3, record.event_edges)


def test_weights_and_the_run_stay_as_they_are(data: Path) -> None:
    found, model, _ = audited(data)
    before = [weight.clone() for weight in model.parameters()]
    exact_gradient(found, model, 0)
    for weight, was in zip(model.parameters(), before, strict=True):
        assert weight.grad is None
        assert torch.equal(weight, was)


def test_events_without_a_gradient_are_refused(data: Path) -> None:
    found = subject(data / "sectors", configuration(data), 1)
    model = build_model(found.configuration)
    compute = model.forward
    model.forward = lambda *inputs: 0 * compute(*inputs)
    with pytest.raises(InputError, match="has no gradient, as that of events without edges"):
        exact_of(found, model)
