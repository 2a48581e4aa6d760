"""The halo exchange of ranks with several sectors each, in float64 against the whole graph."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bigtrk.graphs.event_graph import Sector
from bigtrk.graphs.sector import group
from bigtrk.parallel.halo import halo_plan
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import make_world
from partition.sectors import cut
from tests.distributed.graphs import random_graph, random_parts
from tests.distributed.parity import difference
from tests.distributed.ranks import run_ranks

NODES, WIDTH = 40, 3
# Numbers of sectors by number of ranks: as many, evenly more, and more on some than on others.
PARTS = {1: (3, 4), 2: (3, 4, 8), 3: (4, 5, 8)}
Found = dict[int, list[tuple[Tensor, Tensor]]]


class Gathers(TorchDispatchMode):
    """Names the gathers of rows that are started."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.names += [name] if name.startswith(("index", "gather", "take")) else []
        return func(*args, **(kwargs or {}))


def sectors_of(parts: int) -> list[Sector]:
    """The sectors of a graph with everything that trips an exchange; the last one is empty."""
    graph = random_graph(7, NODES, 5 * NODES)
    return cut(graph, random_parts(graph, parts, parts - 1), parts)


def rows() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64)


def loss_of(nodes: Tensor, sector: Sector) -> Tensor:
    """A loss in which each row of each sector counts differently, also those of one node."""
    factors = torch.arange(1, nodes.numel() + 1).view_as(nodes) + 100 * sector.part
    return (factors * nodes**2).sum()


def exchanged(ranks: Ranks) -> Found:
    """Returns, by number of sectors, what each of this rank's has after an exchange, and the
    gradient of its owned rows.
    """
    world = make_world(ranks, [ranks.world_size])
    found: Found = {}
    for parts in PARTS[ranks.world_size]:
        held = group(ranks.rank, ranks.world_size, parts)
        mine = [sector for sector in sectors_of(parts) if sector.part in held]
        owned = [rows()[s.node_id[: s.n_owned]].requires_grad_() for s in mine]
        with Gathers() as gathers:
            nodes = halo_plan(mine, ranks.world_size, world)(owned)
        assert gathers.names == ["index_select"]  # what is sent and what is kept, at once
        losses = torch.stack([loss_of(*pair) for pair in zip(nodes, mine, strict=True)])
        gradients = torch.autograd.grad(losses.sum(), owned)
        found[parts] = list(zip([one.detach() for one in nodes], gradients, strict=True))
    return found


@pytest.mark.parametrize("world_size", PARTS)
def test_rows_and_gradients_are_those_of_the_whole_graph(world_size: int) -> None:
    results = run_ranks(world_size, exchanged)
    for parts in PARTS[world_size]:
        found = [pair for result in results for pair in result[parts]]
        whole, sectors = rows().requires_grad_(), sectors_of(parts)
        losses = [loss_of(whole[sector.node_id], sector) for sector in sectors]
        (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), whole)
        for (nodes, of_owned), sector in zip(found, sectors, strict=True):
            assert torch.equal(nodes, rows()[sector.node_id])
            expected = gradient[sector.node_id[: sector.n_owned]]
            if sector.n_owned:
                assert difference(of_owned, expected) < 1e-14
