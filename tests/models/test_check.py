"""A model that breaks its contract gets one line that says how; one that keeps it passes."""

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bigtrk.errors import InputError
from bigtrk.models.options import Kind
from bigtrk.models.protocol import Exchange, SectorInputs
from bigtrk.models.settings import (
    AttentionGNNConfig,
    EdgeMLPConfig,
    InteractionGNNConfig,
    ModelConfig,
    make_model,
)
from bigtrk.proof.prove import check_model
from tests.models.graphs import F, G
from tests.models.user_models import Embedding, Layered

CONFIGS: list[tuple[ModelConfig, list[int]]] = [
    (InteractionGNNConfig(hidden=6, layers=3, recompute="layer"), [6, 6]),
    (InteractionGNNConfig(hidden=6, layers=3, recompute="none", precision="bf16"), [6, 6]),
    (InteractionGNNConfig(hidden=6, layers=1, recompute="offload"), []),
    (AttentionGNNConfig(hidden=5, layers=2), [5, 5]),
    (EdgeMLPConfig(hidden=6), []),
]


@pytest.mark.parametrize("n_edge_features", [G, 0])
@pytest.mark.parametrize(("config", "widths"), CONFIGS)
def test_our_models_keep_the_contract(
    config: ModelConfig, widths: list[int], n_edge_features: int
) -> None:
    model = make_model(config, F, n_edge_features)
    before, state = torch.get_rng_state(), {k: v.clone() for k, v in model.state_dict().items()}
    assert check_model(model, F, n_edge_features) == widths
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


class Simple(nn.Module):
    """A model of the simple form that keeps the contract: two sums over edges, then a product."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.edges, self.last = nn.Linear(F, 4), nn.Linear(G, 4), nn.Linear(4, 1)

    def forward(
        self, x: Tensor, e: Tensor, edge_index: Tensor, n_owned: int, exchange: Exchange
    ) -> Tensor:
        source, destination = edge_index
        x, e = self.nodes(x), self.edges(e)
        for _ in range(2):
            sums = x.index_add(0, destination, (x[source] * e).tanh())
            x = self.exchanged(sums, n_owned, exchange)
        made: Tensor = self.last(x[source] * x[destination])[:, 0]
        return made

    def exchanged(self, rows: Tensor, n_owned: int, exchange: Exchange) -> Tensor:
        return exchange(rows[:n_owned])


class Gives(Simple):
    """Changes the result of a model that keeps the contract."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.change = change

    def forward(self, *inputs: Any) -> Any:
        return self.change(super().forward(*inputs))


class HaloToo(Simple):
    def exchanged(self, rows: Tensor, n_owned: int, exchange: Exchange) -> Tensor:  # noqa: ARG002
        return exchange(rows)


class IdleWhereEmpty(Simple):
    def exchanged(self, rows: Tensor, n_owned: int, exchange: Exchange) -> Tensor:
        return exchange(rows[:n_owned]) if n_owned else rows


class Stumbles(Simple):
    def exchanged(self, rows: Tensor, n_owned: int, exchange: Exchange) -> Tensor:
        return exchange(rows[:n_owned] / rows.abs().max())


class MeanOfNodes(Simple):
    def forward(self, x: Tensor, *inputs: Any) -> Tensor:
        return super().forward(x, *inputs) + self.last.bias * x.mean()


class ReadsMissing(Simple):
    def forward(self, x: Tensor, *inputs: Any) -> Tensor:
        return super().forward(x[:, [F]], *inputs)


class RecomputesAll(Simple):
    """Computes all anew in the backward pass, the exchanges too."""

    def forward(self, *inputs: Any) -> Tensor:
        made: Tensor = checkpoint(super().forward, *inputs, use_reentrant=False)
        return made


class Leaves(Simple):
    def forward(self, *inputs: Any) -> Tensor:  # noqa: ARG002
        sys.exit(0)


class Unhooked(Simple):
    """Has had hooks, and has one that gradients do not see."""

    def __init__(self) -> None:
        super().__init__()
        self.last.weight.register_hook(lambda gradient: gradient.clamp(-1, 1)).remove()
        self.last.register_full_backward_hook(lambda *_: None).remove()
        self.last.register_forward_pre_hook(lambda *_: None)
        nn.utils.parametrizations.weight_norm(self.nodes)


class FirstAlone(Layered):
    """Reads the first of a rank's sectors in the place of each."""

    def encode(self, sectors: list[SectorInputs]) -> Any:
        graphs, nodes, edges = super().encode(sectors)
        return graphs, [x + nodes[0].sum() if len(x) else x for x in nodes], edges


class OneSector(Layered):
    """Has a `forward` of one sector alone, as the simple form."""

    def forward(
        self, x: Tensor, e: Tensor, edge_index: Tensor, n_owned: int, exchange: Exchange
    ) -> Any:
        return super().forward(x, e, edge_index, n_owned, exchange)


def test_both_forms_keep_the_contract_and_may_be_hooked() -> None:
    for model in (Simple(), Layered(F, G, hidden=4, layers=2), Unhooked()):
        assert check_model(model, F, G) == [4, 4]


def assert_told(line: str, model: nn.Module, kind: Kind = "edge") -> None:
    with pytest.raises(InputError) as caught:
        check_model(model, F, G, kind)
    assert re.search(line, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "change"),
    [
        (r"returns a tensor of shape \[140, 1\] for a .* return \[E\] or", lambda m: m[:, None]),
        (r"returns torch.float16 for a sector of .*; return float32 or", Tensor.half),
        (r"returns a tuple for a sector of .*; return a tensor", lambda made: (made, 1)),
        (r"returns NaN or infinity for a sector", lambda made: made / 0),
        (r"gives its parameter 'nodes.weight' no gradient for a sector", Tensor.detach),
    ],
)
def test_each_wrong_result_has_its_line(line: str, change: Callable[[Tensor], Any]) -> None:
    assert_told(line, Gives(change))


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("parameter 'spare.weight' no gradient", lambda m: m.add_module("spare", nn.Linear(2, 2))),
        ("weight' has requires_grad=False; make", lambda m: m.last.weight.requires_grad_(False)),
        (
            "has a buffer 'passes', .*; compute it in",
            lambda m: m.register_buffer("passes", torch.zeros(1)),
        ),
        ("again.(weight|bias)' is the same tensor", lambda m: m.add_module("again", m.nodes)),
        (
            "parameter 'scale' has no dimension, so FSDP could not divide it",
            lambda m: m.register_parameter("scale", nn.Parameter(torch.tensor(1.0))),
        ),
        ("last.weight' has a gradient hook", lambda m: m.last.weight.register_hook(torch.clone)),
        (
            "its parameter 'last.weight' has a gradient hook, .* remove it",
            lambda m: m.last.weight.register_post_accumulate_grad_hook(id),
        ),
        (r"'last' \(Linear\) has a gradient", lambda m: m.last.register_full_backward_hook(max)),
        (r"last' \(Linear\) has a gradient", lambda m: m.last.register_full_backward_pre_hook(max)),
        ("last.weight' has no size yet", lambda m: m.add_module("last", nn.LazyLinear(1))),
        ("its parameter 'nodes.weight' is torch.bfloat16", Simple.bfloat16),
    ],
)
def test_each_wrong_layer_has_its_line(line: str, change: Callable[[Simple], Any]) -> None:
    model = Simple()
    change(model)
    assert_told(line, model)


@pytest.mark.parametrize(
    ("line", "model"),
    [
        (r"with shape \[91, 4\] for a sector of 59 nodes, 32 halo", HaloToo),
        (r"calls the exchange less often for a sector of 0 nodes, 0 halo nodes", IdleWhereEmpty),
        (r"fails for a sector of 0 nodes, .* \(\w*Error: .*\)", Stumbles),
        ("parameter 'last.bias' a gradient other than 0 for a sector without .* rows", MeanOfNodes),
        (r"fails for a sector of .* \(IndexError: index 3 is out of bounds", ReadsMissing),
        (r"has no parameters to train", nn.ReLU),
        (r"calls the exchange in its backward pass, .* outside of what", RecomputesAll),
        (r"fails for a sector .* \(RuntimeError: it calls sys.exit\(0\), which would", Leaves),
        (r"gives a sector other results in a list of sectors", lambda: FirstAlone(F, G, 4, 2)),
        (r"fails for a list of several sectors; .* \(TypeError", lambda: OneSector(F, G, 4, 2)),
    ],
)
def test_each_breach_has_its_line(line: str, model: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    assert_told(line, model())


def test_a_hit_model_gives_rows_of_nodes() -> None:
    assert check_model(Embedding(F, G), F, G, "hit") == []
    shape = r"returns a tensor of shape \[140\] for a sector of 59 nodes, .* \[N, D\]"
    assert_told(shape, Simple(), "hit")
