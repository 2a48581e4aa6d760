"""The pT of edges: which is known, and whose."""

import math

import pytest
import torch

from bigtrk.graphs.event_graph import ParticleTable
from bigtrk.graphs.target import edge_log_pt

NAN = math.nan
BIG = 2**53
PT = [2.0, 0.5, 0.4, NAN, 0.0, math.inf]
TABLE = ParticleTable(
    particle_id=torch.tensor([BIG + 1, 7, BIG, 8, 5, 6]),
    pt=torch.tensor(PT),
    eta=torch.zeros(6),
    vertex=torch.zeros(6, 3),
    nhits=torch.ones(6).long(),
)
# In turn of both particles whose ids a detour over float64 would confuse, one of each value of pT
# that is not known, of none in the table, and noise.
PARTICLE_ID = torch.tensor([BIG + 1, BIG, 7, 8, 5, 6, 99, 0])
EDGES = torch.arange(8).expand(2, -1)


def test_known_pt() -> None:
    found = edge_log_pt(torch.ones(8, dtype=torch.bool), EDGES, PARTICLE_ID, TABLE)
    assert found.dtype == torch.float32
    assert found[:3].tolist() == pytest.approx([math.log(pt) for pt in (2.0, 0.4, 0.5)])
    assert found[3:].isnan().all()


def test_false_edges_have_none() -> None:
    y = torch.tensor([True, False] * 4)
    assert edge_log_pt(y, EDGES, PARTICLE_ID, TABLE).isnan().tolist() == [
        *(False, True, False, True),
        *(True, True, True, True),
    ]
