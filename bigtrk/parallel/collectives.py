"""Small sums and gathers over ranks."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.parallel.ranks import named
from bigtrk.tracing import waiting

MOST_DIFFERENCES = 5  # told of many
ABSENT = "none"
Item = TypeVar("Item")


Group = dist.ProcessGroup | None  # None: the world's, of the thread that trains


def collective_device(group: Group = None) -> torch.device:
    """Where tensors must lie for the group's backend to take them."""
    return torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")


def all_sum(values: Sequence[float] | Tensor, device: torch.device) -> Tensor:
    """Elementwise sum over the world, in float64 on the CPU: [n] -> [n]."""
    total = torch.as_tensor(values, dtype=torch.float64).to(device)
    with waiting():
        dist.all_reduce(total)
        return total.cpu()


def all_max(values: Sequence[float], device: torch.device, group: Group = None) -> Tensor:
    """Elementwise maximum over the group, in float64 on the CPU: [n] -> [n]."""
    largest = torch.as_tensor(values, dtype=torch.float64).to(device)
    with _waiting(group):
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        return largest.cpu()


def gather_items(item: Item, group: Group = None) -> list[Item]:
    """Every rank's (small, picklable) item, by rank."""
    items: list[Item | None] = [None] * dist.get_world_size(group)
    with _waiting(group):
        dist.all_gather_object(items, item, group)
    return items  # type: ignore[return-value]


def gather_rows(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Concatenate the rows of all ranks of `group`: [n, C] -> [sum of n, C]."""
    size = dist.get_world_size(group)
    count = torch.tensor([rows.shape[0]], device=rows.device)
    counts = [torch.empty_like(count) for _ in range(size)]
    with waiting():
        dist.all_gather(counts, count, group)
        lengths = [int(length) for length in counts]
    # gloo's all_gather wants equal shapes: pad to the longest.
    padded = rows.new_zeros(max(lengths), *rows.shape[1:])
    padded[: rows.shape[0]] = rows
    received = [torch.empty_like(padded) for _ in range(size)]
    with waiting():
        dist.all_gather(received, padded, group)
    return torch.cat([part[:length] for part, length in zip(received, lengths, strict=True)])


def attempted(call: Callable[[], Item]) -> Future[Item]:
    """The outcome of `call`: bad input is raised where the result is asked for, such as `together`,
    once ranks have met.
    """
    outcome: Future[Item] = Future()
    try:
        outcome.set_result(call())
    except InputError as error:
        outcome.set_exception(error)
    return outcome


def together(call: Callable[[], Item], group: Group = None) -> Item:
    """Run `call` on every rank; if any meets bad input, all ranks raise alike. Collective.

    group: one of all ranks, for threads, which must not share the world's own.

    Raises:
        InputError: naming the first rank that met bad input, where not all did.
    """
    result, error = None, None
    try:
        result = call()
    except InputError as met:
        error = str(met)
    if not all_max([error is not None], collective_device(group), group).any():
        return result  # type: ignore[return-value]
    errors = gather_items(error, group)
    failed = [rank for rank, message in enumerate(errors) if message is not None]
    alone = "" if len(failed) == len(errors) else f"rank {failed[0]}: "
    raise InputError(f"{alone}{errors[failed[0]]}")


def check_agreement(facts: Mapping[str, str]) -> None:
    """All ranks must hold the same `facts`, each a name and what this rank has. Collective.

    Raises:
        InputError: on all ranks, naming the facts that differ, the ranks, and both values.
    """
    everyone = gather_items(dict(facts))
    said = [
        f"{named(ranks)} ha{'ve' if len(ranks) > 1 else 's'} another {name} than rank 0: {value} "
        f"instead of {everyone[0].get(name, ABSENT)}"
        for (name, value), ranks in _differences(everyone).items()
    ]
    if said:
        more = len(said) - MOST_DIFFERENCES
        shown = [*said[:MOST_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])]
        raise InputError(f"{'; '.join(shown)}; start all ranks with the same")


def _differences(everyone: Sequence[Mapping[str, str]]) -> dict[tuple[str, str], list[int]]:
    """The ranks that do not have what rank 0 has, by name and what they have."""
    found: dict[tuple[str, str], list[int]] = {}
    for name in dict.fromkeys(name for facts in everyone for name in facts):
        values = [facts.get(name, ABSENT) for facts in everyone]
        for rank, value in enumerate(values):
            if value != values[0]:
                found.setdefault((name, value), []).append(rank)
    return found


def on_first_rank(call: Callable[[], Item]) -> Item:
    """Run `call` on rank 0; all ranks return its result, or raise its InputError. Collective."""
    outcome = [together(lambda: call() if dist.get_rank() == 0 else None)]
    with waiting():
        dist.broadcast_object_list(outcome)
    return outcome[0]  # type: ignore[return-value]


def _waiting(group: Group) -> AbstractContextManager[None]:
    """Nothing in other threads than the one that trains: a process is in one place."""
    return waiting() if group is None else nullcontext()
