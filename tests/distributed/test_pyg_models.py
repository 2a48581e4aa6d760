"""Networks of PyG's layers on ranks: whole events and cut ones, an empty sector, each engine.

All results: `python scripts/parity/parity_models.py`.
"""

from itertools import groupby

from tests.distributed.matrix import Case
from tests.distributed.pyg_matrix import FLOWS, STACK, PyGTrial, run_pyg_trials, trial
from tests.distributed.ranks import run_ranks

# Every engine, flow and number of ranks; one kind of layer is normalised by degrees.
CHOSEN = [
    trial(STACK, FLOWS[0], "DDP", 2),
    trial(("GATConv", "GATConv"), FLOWS[1], "FSDP2", 2),
    trial(("PNAConv", "PNAConv"), FLOWS[1], "ZeRO-3", 2),
    trial(("GCNConv", "GCNConv"), FLOWS[0], "FSDP2", 3),
]


def run(trials: list[PyGTrial]) -> list[Case]:
    by_world = groupby(sorted(trials, key=lambda one: one.sectors), key=lambda one: one.sectors)
    return [case for world, of in by_world for case in run_ranks(world, run_pyg_trials, [*of])[0]]


def check(cases: list[Case], trials: list[PyGTrial]) -> None:
    assert len(cases) == len(trials)
    assert [case.row() for case in cases if not case.passed] == []
    # Differences are rounding, not zeros of comparisons that compare nothing.
    assert all(case.gradients > 0 for case in cases)


def test_networks_train_in_sectors_as_stock_layers_on_whole_graphs() -> None:
    check(run(CHOSEN), CHOSEN)
