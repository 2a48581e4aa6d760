"""Small sums and gathers over ranks. "Collective" in a docstring: all ranks must call it."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar, TypeVarTuple

import torch
import torch.distributed as dist
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.parallel.ranks import named
from bigtrk.process import uploaded
from bigtrk.tracing import waiting

MOST_DIFFERENCES = 5  # named in a message; there may be many more
ABSENT = "none"
Item = TypeVar("Item")
Given = TypeVarTuple("Given")
Group = dist.ProcessGroup | None  # None: the world's group, used by the thread that trains


def collective_device(group: Group = None) -> torch.device:
    """Returns the device of the tensors that the group's backend sends."""
    return torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")


def sum_on(values: Sequence[float] | Tensor, device: torch.device) -> Tensor:
    """Sums values [n] over all ranks, in float64 on `device`, without waiting. Collective."""
    total = uploaded(torch.as_tensor(values, dtype=torch.float64), device)
    if dist.get_world_size() > 1:
        with waiting():
            dist.all_reduce(total)
    return total


def all_sum(values: Sequence[float] | Tensor, device: torch.device) -> Tensor:
    """Sums values [n] over all ranks; returns float64 on the CPU. Collective."""
    total = sum_on(values, device)
    with waiting():
        return total.cpu()


def all_max(values: Sequence[float], device: torch.device, group: Group = None) -> Tensor:
    """Returns the elementwise maximum of values [n] over the group's ranks, float64 on the CPU."""
    largest = torch.as_tensor(values, dtype=torch.float64)
    if dist.get_world_size(group) == 1:
        return largest
    largest = uploaded(largest, device)
    with _waiting(group):
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        return largest.cpu()


def gather_items(item: Item, group: Group = None) -> list[Item]:
    """Returns every rank's (small, picklable) item, by rank. Collective in the group."""
    items: list[Item | None] = [None] * dist.get_world_size(group)
    with _waiting(group):
        dist.all_gather_object(items, item, group)
    return items  # type: ignore[return-value]


def gather_rows(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Concatenates the rows of all ranks of `group`: [n, C] -> [sum of n, C]. Collective."""
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
    """Calls `call`, and returns its result or InputError as a Future. The error is raised where the
    result is read, for instance in `together`, once all ranks have arrived there.
    """
    outcome: Future[Item] = Future()
    try:
        outcome.set_result(call())
    except InputError as error:
        outcome.set_exception(error)
    return outcome


def together(call: Callable[[*Given], Item], *given: *Given, group: Group = None) -> Item:
    """Calls `call` on every rank; if one raises InputError, all raise the same one. Collective.

    group: a group of all ranks for use in a thread, which must not share the world's own. The
    InputError is the first failing rank's, and names that rank unless all ranks failed.
    """
    result, error = None, None
    try:
        result = call(*given)
    except InputError as met:
        error = str(met)
    if not all_max([error is not None], collective_device(group), group).any():
        return result  # type: ignore[return-value]
    errors = gather_items(error, group)
    failed = [rank for rank, message in enumerate(errors) if message is not None]
    alone = "" if len(failed) == len(errors) else f"rank {failed[0]}: "
    raise InputError(f"{alone}{errors[failed[0]]}")


def check_agreement(facts: Mapping[str, str]) -> None:
    """Checks that all ranks have the same `facts`, a value for each name. Collective. Raises
    InputError, on all ranks, if facts differ; it names these facts, the ranks, and both values.
    """
    everyone = gather_items(dict(facts))
    differing: dict[tuple[str, str], list[int]] = {}  # ranks whose value is not rank 0's
    for name in dict.fromkeys(name for one in everyone for name in one):
        values = [one.get(name, ABSENT) for one in everyone]
        for rank, value in enumerate(values):
            if value != values[0]:
                differing.setdefault((name, value), []).append(rank)
    said = [
        f"{named(ranks)} ha{'ve' if len(ranks) > 1 else 's'} another {name} than rank 0: {value} "
        f"instead of {everyone[0].get(name, ABSENT)}"
        for (name, value), ranks in differing.items()
    ]
    if said:
        more = len(said) - MOST_DIFFERENCES
        shown = [*said[:MOST_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])]
        raise InputError(f"{'; '.join(shown)}; start all ranks with the same values")


def on_first_rank(call: Callable[[*Given], Item], *given: *Given) -> Item:
    """Calls `call` on rank 0; all ranks return its result, or raise its InputError. Collective."""
    outcome = [together(lambda: call(*given) if dist.get_rank() == 0 else None)]
    with waiting():
        dist.broadcast_object_list(outcome)
    return outcome[0]  # type: ignore[return-value]


def _waiting(group: Group) -> AbstractContextManager[None]:
    """Marks the thread that trains as waiting; does nothing for a group of another thread."""
    return waiting() if group is None else nullcontext()
