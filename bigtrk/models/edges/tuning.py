"""Chooses, by time on the card, how many of its loads the forward pass over edges starts ahead.

Loads that start earlier sum nothing in another order, so that cards, ranks and runs which choose
differently compute the same bits. Whatever does fix an order is a constant (schedule.py).
"""

from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from bigtrk.models.edges.work import Shape

# Triton's own number comes first: it is taken for few rows, and where there is no GPU.
STAGES = 3, 1, 2, 4
# Edges are timed that fill so much, more than a card's L2; with fewer, starting them is much of it.
TIMED_BYTES = 2**26
_REPEATS = 5
_chosen: dict[tuple[Shape, torch.device], int] = {}

# Makes so many of the first rows in a tensor, with so many stages.
Launch = Callable[[int, Tensor, int], None]


def forward_stages(shape: Shape, made: Tensor, launch: Launch) -> int:
    """Returns the stages of a pass that makes `made` [M, H]; the first large one is timed on some
    of its rows, which go elsewhere.
    """
    timed = -(-TIMED_BYTES // (made.element_size() * made.shape[1]))
    known = _chosen.get((shape, made.device))
    if known is None and made.is_cuda and len(made) >= timed:
        scratch = torch.empty_like(made[:timed])
        known = fastest(lambda stages: _milliseconds(lambda: launch(timed, scratch, stages)))
        _chosen[shape, made.device] = known
    return known or STAGES[0]


def fastest(milliseconds_of: Callable[[int], float]) -> int:
    """Returns the stages that take least, of those for which a program has the shared memory."""
    from triton.runtime.errors import OutOfResources

    found: dict[int, float] = {}
    for stages in STAGES:
        try:
            found[stages] = milliseconds_of(stages)
        except OutOfResources:
            continue
    return min(found, key=found.__getitem__, default=STAGES[0])


def _milliseconds(launch: Callable[[], None]) -> float:
    launch()  # compiles
    return median(_timed(launch) for _ in range(_REPEATS))


def _timed(launch: Callable[[], None]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    launch()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
