"""The halo exchange: owned rows travel out, and their gradients travel back.

Shapes: N rows of a sector (n_owned owned, then halo), H features, S rows sent.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from bigtrk.graphs.sector import Sector
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.parallel.world import World
from bigtrk.tracing import waiting


@dataclass(frozen=True)
class HaloPlan:
    """The rows that this sector sends and receives, rank by rank of its group.

    send_index [S] int64: owned rows, grouped by receiver as `send_splits` counts them.
    recv_splits: halo rows by owner. Their order is the sector's.
    """

    send_index: Tensor
    send_splits: tuple[int, ...]
    recv_splits: tuple[int, ...]
    group: dist.ProcessGroup
    stopwatch: Stopwatch

    def swap(self, rows: Tensor, to: tuple[int, ...], of: tuple[int, ...]) -> Tensor:
        """Sends `rows` split by `to`, and receives rows split by `of`."""
        with self.stopwatch.time("exchange"):
            received = rows.new_empty(sum(of), *rows.shape[1:])
            rows = rows.contiguous()
            with waiting():
                dist.all_to_all_single(received, rows, list(of), list(to), self.group)
        return received

    def __call__(self, owned: Tensor) -> Tensor:
        """Appends the fresh halo rows: [n_owned, H] -> [N, H]; differentiable."""
        result: Tensor = _Exchange.apply(owned, self)
        return result


def halo_plan(sector: Sector, world: World) -> HaloPlan:
    """Plans the exchanges of a sector with the event's others, one on each rank of a group."""
    return HaloPlan(
        sector.send_index.to(world.device),
        sector.send_splits,
        sector.recv_splits,
        world.groups.of_size(sector.parts),
        world.stopwatch,
    )


class _Exchange(torch.autograd.Function):
    # all_to_all_single_autograd leaked under checkpointing (pytorch/torchtitan #1467), and the
    # reverse exchange is one line, so the Function is our own.

    @staticmethod
    def forward(ctx, owned: Tensor, plan: HaloPlan) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.plan = plan
        ctx.n_owned = owned.shape[0]
        halo = plan.swap(owned[plan.send_index], plan.send_splits, plan.recv_splits)
        return torch.cat([owned, halo])

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        plan: HaloPlan = ctx.plan
        halo = gradient[ctx.n_owned :]
        returned = plan.swap(halo, plan.recv_splits, plan.send_splits)
        owned = gradient[: ctx.n_owned].clone()
        # A row that several sectors asked for collects a gradient from each of them.
        return owned.index_add_(0, plan.send_index, returned), None
