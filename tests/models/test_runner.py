"""A rank's sectors, taken layer by layer, give the whole graph's results and gradients."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from bigtrk.models.attention_gnn import AttentionGNN
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.mlps import EdgeMLP
from bigtrk.models.protocol import LayeredModel, SectorInputs, no_exchange, units
from bigtrk.models.settings import AttentionGNNConfig, EdgeMLPConfig, InteractionGNNConfig
from tests.models import checks
from tests.models.graphs import Cut, F, G, gradients, make_graph

Model = LayeredModel[Any]


def interaction(pt_head: bool = False, **options: Any) -> Model:
    config = InteractionGNNConfig(**{"hidden": 6, "layers": 3, **options})
    return InteractionGNN(config, F, G, pt_head)


def attention(**options: Any) -> Model:
    return AttentionGNN(AttentionGNNConfig(**{"hidden": 6, "layers": 2, **options}), F, G)


MODELS = {
    "interaction in chunks": interaction(pt_head=True),
    "interaction by layer": interaction(recompute="layer", shared_weights=True),
    "interaction keeping all": interaction(recompute="none", concatenate=False),
    "interaction on the host": interaction(recompute="offload"),
    "attention": attention(),
    "attention keeping all": attention(recompute="none"),
    "mlp": EdgeMLP(EdgeMLPConfig(hidden=6), F, G),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_sectors_of_one_process_train_like_the_whole_graph(model: Model) -> None:
    """Loss and gradients of sectors whose rows are exchanged, with one that owns nothing."""
    model, graph = model.double(), make_graph()
    expected = model(*graph, len(graph[0]), no_exchange)
    wanted = gradients(model, expected)
    cut = Cut(graph)
    made = cut.merged(model.forward_all(cut.sectors, cut.exchange))
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
    found = gradients(model, made)
    checks.same_gradients(model, found, wanted)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_what_is_gathered_at_once_is_called_as_often_for_many_sectors(model: Model) -> None:
    """Hooks of these calls gather and free parameters: ranks must come by them in step."""
    model, cut = model.double(), Cut(make_graph())
    one, many = (calls(model, sectors, cut) for sectors in (cut.sectors[:1], cut.sectors))
    assert one == many
    assert min(one.values()) >= 1
    assert len(one) == sum(1 for _ in units(model))


def calls(model: Model, sectors: list[SectorInputs], cut: Cut) -> Counter[int]:
    """Counts how often each of the model's units is called in one pass."""
    counted: Counter[int] = Counter()
    hooks = [
        unit.register_forward_hook(lambda *_, i=i: counted.update([i]))
        for i, unit in enumerate(units(model))
    ]

    def exchange(owned: list[Tensor]) -> list[Tensor]:
        if len(owned) == len(cut.sectors):
            return cut.exchange(owned)
        halo = len(sectors[0].x) - sectors[0].n_owned
        return [torch.cat([rows, rows.new_zeros(halo, rows.shape[1])]) for rows in owned]

    model.forward_all(sectors, exchange)
    for hook in hooks:
        hook.remove()
    return counted
