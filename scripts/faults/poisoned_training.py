"""bigtrk/train.py, but once there is the file BIGTRK_POISON, which holds a kind and a rank, that
rank reads NaN, computes NaN or infinity, needs more memory than there is, or hangs.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from bigtrk import program
from bigtrk.graphs.event_graph import Sector
from bigtrk.training import loss
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.loss import edge_loss

poison = Path(os.environ["BIGTRK_POISON"])
healthy_read = EventSource.read_several


def poisoned_by(kind: str) -> bool:
    """Whether this rank is poisoned, from now on."""
    return poison.exists() and poison.read_text() == f"{kind} {os.environ['RANK']}"


def poisoned_read(self: EventSource, numbers: Sequence[int], parts: int) -> list[Sector]:
    """Reads what the source holds, with NaN; or nothing, ever."""
    sectors = healthy_read(self, numbers, parts)
    if poisoned_by("input"):
        # Copies, since a file's own tensors are checked when they are first read, and then no more.
        sectors = [replace(one, edge_features=one.edge_features * torch.nan) for one in sectors]
    if poisoned_by("stuck"):
        time.sleep(10_000)
    return sectors


def poisoned_loss(logits: Tensor, label: Tensor, scale: Tensor) -> Tensor:
    """Computes the loss, or NaN; with finite gradients, or infinite ones."""
    if poisoned_by("memory"):
        torch.empty(2**55)
    if poisoned_by("gradient"):
        logits.register_hook(lambda gradient: torch.full_like(gradient, torch.inf))
    loss = edge_loss(logits, label, scale)
    return loss * float("nan") if poisoned_by("loss") else loss


EventSource.read_several = poisoned_read  # type: ignore[method-assign]
setattr(loss, "edge_loss", poisoned_loss)  # noqa: B010  # mypy: it is imported there
program.main()
