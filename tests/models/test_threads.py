"""A training step has the same bits on any number of threads."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from bigtrk.models.attention_gnn import AttentionGNN, AttentionGNNConfig
from bigtrk.models.edges import native
from bigtrk.models.edges.states import Recompute
from bigtrk.models.protocol import LayeredModel, no_exchange
from bigtrk.training.loss import edge_loss
from tests.models.graphs import F, G, make_graph
from tests.models.test_interaction_gnn import OPTIONS, make_model

# torch shares what has more than 32,768 elements among threads.
NODES, EDGES = 700, 5_000
CASES: list[dict[str, Any]] = [
    *OPTIONS,
    *({"recompute": recompute} for recompute in get_args(Recompute) if recompute != "chunk"),
]
# The plain passes are the same functions whatever the options.
FORMS = [
    *(("native", options) for options in CASES),
    *(("plain", options) for options in ({}, {"recompute": "none"})),
]
each_precision = pytest.mark.parametrize("precision", ["fp32", "bf16"])


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(before)


@pytest.fixture
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(native, "usable", lambda *_: False)
    elif native.library() is None:
        pytest.skip("no C compiler")


def step(model: LayeredModel[Any], n_threads: int) -> dict[str, Tensor]:
    """The loss of a step on `n_threads`, its logits and all gradients."""
    torch.set_num_threads(n_threads)
    x, edge_features, edge_index = make_graph(NODES, EDGES)
    logits = model(x.float(), edge_features.float(), edge_index, NODES, no_exchange)
    of_edges = logits if logits.dim() == 1 else logits.sum(1)
    label = (torch.arange(EDGES) % 3 == 0).float()
    loss = edge_loss(of_edges, label, torch.linspace(0, 1, EDGES))
    model.zero_grad()
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert len(gradients) == len(list(model.parameters()))
    return {"loss": loss.detach(), "logits": logits.detach(), **gradients}


def assert_same_bits(model: LayeredModel[Any], n_threads: tuple[int, ...] = (1, 2, 3)) -> None:
    one, *others = (step(model, n) for n in n_threads)
    assert all(values.isfinite().all() for values in one.values())
    for other in others:
        assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.mark.usefixtures("passes")
@each_precision
@pytest.mark.parametrize(("passes", "options"), FORMS, indirect=["passes"], ids=str)
def test_threads_change_no_bit_of_a_step(options: dict[str, Any], precision: str) -> None:
    assert_same_bits(make_model(**{"hidden": 16, **options, "precision": precision}))


@pytest.mark.skipif(native.library() is None, reason="no C compiler")
@each_precision
@pytest.mark.parametrize("hidden", [20, 33])
def test_nor_at_widths_where_torch_s_own_products_depend_on_them(
    hidden: int, precision: str
) -> None:
    """Torch's float32 products have other bits from 3 threads on, on an AMD EPYC."""
    assert_same_bits(make_model(hidden=hidden, precision=precision), (1, 3, 8))


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("passes", ["native", "plain"], indirect=True)
@each_precision
def test_nor_of_the_attention_network(precision: str) -> None:
    config = AttentionGNNConfig.model_validate({"hidden": 16, "layers": 2, "precision": precision})
    torch.manual_seed(0)
    assert_same_bits(AttentionGNN(config, F, G))
