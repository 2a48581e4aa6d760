"""Mini-batches: what each trains on, and which of an epoch's steps holds what."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from bigtrk.formats.acorn.model_files import load_acorn_weights
from bigtrk.graphs.features import SCALES, normalised
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Assignment
from bigtrk.parallel.world import make_world
from bigtrk.sampling.shadow import ShaDow
from bigtrk.sampling.subgraphs import Walk
from bigtrk.training.data.batch import BatchMaker, compute
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration, TrainingSettings
from bigtrk.training.steps import PartSteps, ShadowSteps, read_sector
from tests.distributed.graphs import EDGE_FEATURES, NODE_FEATURES, source
from tests.distributed.ranks import ALONE
from tests.oracle.interaction_gnn import ReferenceGNN

WORLD = make_world(ALONE)
PARTS = 3


def configuration(**data: str) -> Configuration:
    return Configuration.model_validate(
        {"data": data, "model": {"hidden": 8, "layers": 3}, "sampling": {"method": "sectors"}}
    )


@pytest.fixture
def sources() -> list[Any]:
    return [source(1, PARTS), source(2, PARTS, n_nodes=60)]


def sector_steps(sources: list[Any], per_step: int = 2, world_size: int = 1) -> PartSteps:
    sectors = [(event, part, PARTS) for event in range(2) for part in range(PARTS)]
    training = TrainingSettings(events_per_step=per_step)
    costs, read = [1.0] * len(sectors), partial(read_sector, sources)
    return PartSteps(sectors, costs, read, training, world_size, lockstep=False)


@pytest.mark.parametrize("context", ["halo", "naive"])
def test_a_sector_is_trained_as_a_graph_of_its_own(sources: list[Any], context: str) -> None:
    """It is the graph of all its nodes and edges with halo, and that of the owned nodes without."""
    settings = configuration(sectors=context)
    model = build_model(settings)
    assert isinstance(model, InteractionGNN)
    plain = ReferenceGNN(model.config, 4, 6)
    load_acorn_weights(model, plain.state_dict())
    read = sector_steps(sources).reader(0, BatchMaker(settings, WORLD))
    third = Assignment(1, (2,), PARTS, first_rank=0)
    [(logits, _)] = compute(model, read(third))
    sector = sources[1].read(third.part, PARTS)
    n_nodes = sector.n_nodes if context == "halo" else sector.n_owned
    inside = (sector.edge_index < n_nodes).all(dim=0)
    assert inside.all() == (context == "halo")
    x = normalised(sector.node_features, NODE_FEATURES, SCALES, NODE_FEATURES)[:n_nodes]
    e = normalised(sector.edge_features, EDGE_FEATURES, SCALES, EDGE_FEATURES)[inside]
    expected = plain(x, e, sector.edge_index[:, inside])
    torch.testing.assert_close(logits[: len(expected)], expected, rtol=1e-4, atol=1e-5)
    assert (logits[len(expected) :] == -30).all()


def test_every_sector_once_an_epoch_on_any_number_of_ranks(sources: list[Any]) -> None:
    def held(world_size: int) -> list[list[tuple[int, int]]]:
        return [
            sorted((s.event, s.part) for row in step.micro_steps for s in row if s)
            for step in sector_steps(sources, 4, world_size).of(epoch=3)
        ]

    once = [(event, part) for event in range(2) for part in range(PARTS)]
    assert sorted(sector for step in held(1) for sector in step) == once
    assert held(1) == held(2) == held(5)
    steps = sector_steps(sources, 4, 2)
    assert len(steps.of(0)) == steps.per_epoch == 2
    assert {step.micro_steps and len(step.micro_steps) for step in steps.of(0)} == {2, 1}
    assert all(step.cuts == {} for step in steps.of(0))


def shadow_steps(sources: list[Any], rank: int = 0, ranks: int = 1) -> ShadowSteps:
    return ShadowSteps(
        sources, ShaDow(Walk(2, 3), 16, bulk=2), seed=5, ranks=Ranks(rank, ranks, rank, ranks, "")
    )


def nodes_of(steps: ShadowSteps, skipped: int | None = None) -> dict[tuple[int, int], Tensor]:
    """The nodes of each mini-batch, by event and number."""
    read, found = steps.reader(1, BatchMaker(configuration(), WORLD)), {}
    for i, step in enumerate(steps.of(1)):
        [share] = {row[0] for row in step.micro_steps}
        if share and i != skipped:
            found[share.event, share.part] = read(share).batches[0].sector.node_id
    return found


def test_shadow_steps_have_every_node_of_every_event(sources: list[Any]) -> None:
    steps = shadow_steps(sources)
    found = nodes_of(steps)
    assert len(found) == steps.per_epoch == 3 + 4
    for event, size in ((0, 40), (1, 60)):
        nodes = torch.cat([nodes for (e, _), nodes in found.items() if e == event])
        assert nodes.unique().tolist() == list(range(size))
    shares = [nodes_of(shadow_steps(sources, rank, 3)) for rank in range(3)]
    for key, nodes in found.items():  # ranks share the roots
        parts = torch.cat([share[key] for share in shares])
        assert torch.equal(parts.sort()[0], nodes.sort()[0])


@pytest.mark.parametrize("skipped", [0, 1])
def test_a_mini_batch_does_not_depend_on_those_before(sources: list[Any], skipped: int) -> None:
    """A step that is left out, as a spike, changes no other."""
    whole, rest = nodes_of(shadow_steps(sources)), nodes_of(shadow_steps(sources), skipped)
    assert len(rest) == len(whole) - 1
    assert all(torch.equal(nodes, whole[key]) for key, nodes in rest.items())
