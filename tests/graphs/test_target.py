"""Target edges, their weights and their pT, edge by edge."""

import math

import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import ParticleTable, Target, edge_pt, edge_weights, target_edges

NAN = float("nan")
# Ids above 2^53 differ in their last digit only: a detour over float64 would confuse them.
BIG = 2**53
TABLE = ParticleTable(
    particle_id=torch.tensor([BIG + 1, 7, BIG, 8]),
    pt=torch.tensor([2.0, 0.5, 0.4, NAN]),
    eta=torch.tensor([-1.0, 3.0, 0.0, NAN]),
    vertex=torch.zeros(4, 3),
    nhits=torch.tensor([9, 9, 2, 9]),
)
PARTICLE_ID = torch.tensor([BIG + 1, BIG + 1, 7, 7, BIG, BIG, 8, 8, 0, 99, 99])
EDGES = torch.tensor([[0, 2, 4, 6, 9, 0, 8], [1, 3, 5, 7, 10, 2, 0]])
Y = torch.tensor([True, True, True, True, True, False, False])


def chosen(target: Target) -> list[bool]:
    found = target_edges(Y, EDGES, PARTICLE_ID, TABLE, target)
    assert found.dtype == torch.bool
    return found.tolist()


@pytest.mark.parametrize(
    ("target", "true_edges"),
    [
        (Target(), [1, 1, 1, 1, 1]),
        (Target(pt_min=0.5), [1, 1, 0, 0, 0]),
        (Target(hits_min=3), [1, 1, 0, 1, 0]),
        (Target(eta_max=2.0), [1, 0, 1, 0, 0]),
        (Target(pt_min=0.4, hits_min=2, eta_max=2.0), [1, 0, 1, 0, 0]),
    ],
    ids=str,
)
def test_target_edges(target: Target, true_edges: list[bool]) -> None:
    assert chosen(target) == [*true_edges, False, False]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target(), [1.0, 0.0, 1.0, 1.0]),
        (Target(weight=3.0), [3.0, 0.0, 1.0, 1.0]),
        (Target(weight=3.0, other_weight=0.5), [3.0, 0.5, 1.0, 1.0]),
        (Target(other_weight=-2.0), [1.0, -2.0, 1.0, 1.0]),
    ],
    ids=str,
)
def test_weights(target: Target, expected: list[float]) -> None:
    y = torch.tensor([True, True, False, False])
    is_target = torch.tensor([True, False, False, False])
    found = edge_weights(y, is_target, target)
    assert found.dtype == torch.float32
    assert found.tolist() == expected


def test_pt_is_known_of_true_edges_alone() -> None:
    """The edges are of two particles whose ids a detour over float64 would confuse, of another one,
    of one for each unknown value of pT, of one that the table lacks, of noise, and false.
    """
    ids = torch.tensor([BIG + 1, 7, BIG, 8, 5, 6])
    pt = torch.tensor([2.0, 0.5, 0.4, NAN, 0.0, math.inf])
    table = ParticleTable(ids, pt, torch.zeros(6), torch.zeros(6, 3), torch.ones(6).long())
    particle_id = torch.tensor([BIG + 1, BIG, 7, 8, 5, 6, 99, 0, 7])
    edges, y = torch.arange(9).expand(2, -1), torch.arange(9) < 8
    found = edge_pt(y, edges, particle_id, table)
    assert found.dtype == torch.float32
    assert found[:3].tolist() == pytest.approx([2.0, 0.4, 0.5])
    assert found[3:].isnan().all()


def test_without_ids_only_the_default_target_works() -> None:
    assert torch.equal(target_edges(Y, EDGES, None, None, Target()), Y)
    remedy = "target.pt_min=0 target.hits_min=0"
    for ids, table in ((None, TABLE), (PARTICLE_ID, None)):
        with pytest.raises(InputError, match=remedy):
            target_edges(Y, EDGES, ids, table, Target(pt_min=1.0))
