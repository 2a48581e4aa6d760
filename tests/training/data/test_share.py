"""A share that is padded: its backward pass has gradients ready in the order of the other ranks."""

from functools import partial

import pytest
import torch
from torch import nn

from bigtrk.models.settings import (
    AttentionGNNConfig,
    EdgeMLPConfig,
    InteractionGNNConfig,
    ModelConfig,
)
from bigtrk.parallel.routing import Assignment
from bigtrk.parallel.world import make_world
from bigtrk.training.data.batch import BatchMaker, Share, run_model
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import source
from tests.distributed.ranks import ALONE

MODELS = (
    InteractionGNNConfig(hidden=8, layers=3, recompute="none"),
    InteractionGNNConfig(hidden=8, layers=3, recompute="layer"),
    InteractionGNNConfig(hidden=8, layers=3, recompute="chunk"),
    AttentionGNNConfig(hidden=8, layers=3),
    EdgeMLPConfig(hidden=8),
)


@pytest.mark.parametrize("config", MODELS, ids=lambda one: f"{one.name} {one.recompute}")
def test_gradients_are_ready_in_one_order(config: ModelConfig) -> None:
    """ZeRO-2 averages them over the ranks as it finds them."""
    world = make_world(ALONE, [])
    maker = BatchMaker(Configuration(), world)
    events = [source(0, 2)]
    empty = maker.empty()
    two = maker.make(Assignment(0, (0, 1), parts=2, first_rank=0), events)
    whole = maker.make(Assignment(0, (0,), parts=1, first_rank=0), events).padded(
        empty.batches[0], 1, world
    )
    none = empty.padded(empty.batches[0], 1, world)
    orders = [order_of_gradients(config, share) for share in (two, whole, none)]
    assert orders[0] == orders[1] == orders[2]
    assert len(orders[0]) == len({*orders[0]}) > 3


def order_of_gradients(config: ModelConfig, share: Share) -> list[str]:
    """Returns the parameters' names in the order in which a backward pass has their gradients."""
    torch.manual_seed(0)
    model, order = config.build(4, 6, pt_head=False), list[str]()

    def ready(name: str, _: nn.Parameter) -> None:
        order.append(name)

    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(partial(ready, name))
    sum(logits.sum() for logits in run_model(model, share)).backward()  # type: ignore[union-attr]
    return order
