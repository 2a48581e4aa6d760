"""Ranks that hold several sectors each train as one process does, under engines that gather what
they shard by the hooks of modules.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from bigtrk.models.attention_gnn import AttentionGNN
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import LayeredModel, no_exchange
from bigtrk.models.settings import AttentionGNNConfig, InteractionGNNConfig
from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.world import Stopwatch
from tests.distributed.parity import difference, whole_gradients
from tests.distributed.ranks import run_ranks
from tests.models.graphs import Cut, F, G, Graph, gradients, make_graph
from tests.test_adding import example

ENGINES = {
    "DDP": (EngineSettings(), torch.float64, 1e-12),
    "FSDP2": (EngineSettings(name="fsdp2"), torch.float64, 1e-12),
    "ZeRO-3": (EngineSettings(name="deepspeed", ds_config="zero3"), torch.float32, 1e-4),
}


def models() -> dict[str, LayeredModel[Any]]:
    """Models of the same weights on every rank."""
    torch.manual_seed(0)
    page = example("model.md")
    configs = {
        InteractionGNN: InteractionGNNConfig(hidden=6, layers=3),
        AttentionGNN: AttentionGNNConfig(hidden=6),
        page.Sums: page.SumsConfig(hidden=6),
    }
    return {kind.__name__: kind(config, F, G) for kind, config in configs.items()}


def loss_of(made: Tensor) -> Tensor:
    """A loss in which every edge counts differently."""
    return (made * torch.arange(1, len(made) + 1)).square().sum()


def graph_of(rank: int, dtype: torch.dtype) -> Graph:
    x, edge_features, edge_index = make_graph(12 + 2 * rank, 40)
    return x.to(dtype), edge_features.to(dtype), edge_index


def gradients_in_lists(ranks: Ranks) -> dict[tuple[str, str], dict[str, Tensor]]:
    """Returns, by engine and model, the mean of the ranks' gradients, each rank's of a graph of its
    own in three sectors.
    """
    found = {}
    for engine_name, (settings, dtype, _) in ENGINES.items():
        for model_name, model in models().items():
            stopwatch = Stopwatch(ranks.device)
            engine, _ = make_engine(settings, model.to(dtype), OptimizerSettings(), stopwatch)
            cut = Cut(graph_of(ranks.rank, dtype))
            with engine.micro_step(last=True):
                made = cut.merged(engine.model(cut.sectors, cut.exchange))
                engine.backward(loss_of(made))
            found[engine_name, model_name] = whole_gradients(engine.model)
    return found


@pytest.fixture(scope="module")
def ranks_2() -> list[dict[tuple[str, str], dict[str, Tensor]]]:
    return run_ranks(2, gradients_in_lists)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["InteractionGNN", "AttentionGNN", "Sums"])
def test_gradients_are_those_of_whole_graphs(
    engine: str, name: str, ranks_2: list[dict[tuple[str, str], dict[str, Tensor]]]
) -> None:
    model = models()[name].double()
    expected: dict[str, Tensor] = {}
    for rank in range(2):
        x, *others = graph_of(rank, torch.float64)
        for key, gradient in gradients(model, model(x, *others, len(x), no_exchange)).items():
            expected[key] = expected.get(key, torch.zeros(())) + gradient / 2
    for found in ranks_2:
        assert found[engine, name].keys() == expected.keys()
        for key, gradient in expected.items():
            assert difference(found[engine, name][key], gradient) < ENGINES[engine][2], key
