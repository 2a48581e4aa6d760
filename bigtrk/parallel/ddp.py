"""DistributedDataParallel: a replica on each rank, gradients averaged in the backward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from bigtrk.parallel.engine import Engine, make_optimizer
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.parallel.stopwatch import Stopwatch

STATE = "state.pt"


class DDPEngine(Engine):
    """PyTorch's DDP with AdamW."""

    def __init__(
        self, model: nn.Module, optimizer: OptimizerSettings, stopwatch: Stopwatch
    ) -> None:
        self.model = self._ddp = DistributedDataParallel(model)
        self._ddp.register_comm_hook(stopwatch, _timed_mean)
        self._optimizer = make_optimizer(model.parameters(), optimizer)
        self._clipping = optimizer.gradient_clipping

    @contextmanager
    def micro_step(self, last: bool) -> Iterator[None]:
        if last:
            yield
        else:
            with self._ddp.no_sync():
                yield

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def step(self, lr: float) -> None:
        if self._clipping:
            nn.utils.clip_grad_norm_(self.model.parameters(), self._clipping)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self._optimizer.zero_grad()

    def save(self, folder: Path) -> None:
        if dist.get_rank() == 0:
            state = {
                "model": self._ddp.module.state_dict(),
                "optimizer": self._optimizer.state_dict(),
            }
            torch.save(state, folder / STATE)

    def load(self, folder: Path) -> None:
        state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
        self._ddp.module.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])

    def weights(self) -> dict[str, Tensor]:
        return {name: value.cpu() for name, value in self._ddp.module.state_dict().items()}


def _timed_mean(
    stopwatch: Stopwatch,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch insists on this annotation
) -> Future[Tensor]:
    """DDP's default reduction, with its duration on the stopwatch."""
    start = stopwatch.now()
    gradients = bucket.buffer().div_(dist.get_world_size())
    future = dist.all_reduce(gradients, async_op=True).get_future()

    def finish(reduced: Future[list[Tensor]]) -> Tensor:
        stopwatch.add("reduce", stopwatch.now() - start)
        return reduced.value()[0]

    timed: Future[Tensor] = future.then(finish)
    return timed
