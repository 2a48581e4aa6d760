"""Small sums and gathers over ranks."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from bigtrk.errors import InputError

Item = TypeVar("Item")


def all_sum(values: Sequence[float] | Tensor, device: torch.device) -> Tensor:
    """Elementwise sum over the world, in float64 on the CPU: [n] -> [n]."""
    total = torch.as_tensor(values, dtype=torch.float64).to(device)
    dist.all_reduce(total)
    return total.cpu()


def all_max(values: Sequence[float], device: torch.device) -> Tensor:
    """Elementwise maximum over the world, in float64 on the CPU: [n] -> [n]."""
    largest = torch.as_tensor(values, dtype=torch.float64).to(device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest.cpu()


def gather_items(item: Item) -> list[Item]:
    """Every rank's (small, picklable) item, by rank."""
    items: list[Item | None] = [None] * dist.get_world_size()
    dist.all_gather_object(items, item)
    return items  # type: ignore[return-value]


def gather_rows(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Concatenate the rows of all ranks of `group`: [n, C] -> [sum of n, C]."""
    size = dist.get_world_size(group)
    count = torch.tensor([rows.shape[0]], device=rows.device)
    counts = [torch.empty_like(count) for _ in range(size)]
    dist.all_gather(counts, count, group)
    lengths = [int(length) for length in counts]
    # gloo's all_gather wants equal shapes: pad to the longest.
    padded = rows.new_zeros(max(lengths), *rows.shape[1:])
    padded[: rows.shape[0]] = rows
    received = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(received, padded, group)
    return torch.cat([part[:length] for part, length in zip(received, lengths, strict=True)])


def on_first_rank(call: Callable[[], Item]) -> Item:
    """Run `call` on rank 0; all ranks return its result, or raise its InputError together."""
    outcome: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            outcome[0] = call()
        except InputError as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    result: Item = outcome[0]
    return result
