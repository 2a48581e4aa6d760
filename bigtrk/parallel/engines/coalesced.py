"""All gradients averaged by one all-reduce per step, out of one flat buffer.

Tripathy et al., "Scaling graph neural networks for particle track reconstruction": a reduction per
parameter pays the network's latency once for each of many small tensors. DDP's buckets are the
other remedy; they overlap with the backward pass, but are as many as 25 MB buckets are needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bigtrk.parallel.engines.ddp import ReplicaEngine
from bigtrk.parallel.engines.engine import share_weights
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.tracing import waiting


class CoalescedEngine(ReplicaEngine):
    """Plain replicas whose gradients are views of one buffer, averaged after the last micro-step.

    A parameter without gradient counts as zeros.
    """

    def __init__(
        self, model: nn.Module, optimizer: OptimizerSettings, stopwatch: Stopwatch
    ) -> None:
        super().__init__(model, optimizer)
        share_weights(model)
        self._stopwatch = stopwatch
        self._buffer, self._gradients = flat_gradients(list(model.parameters()))

    @contextmanager
    def micro_step(self, last: bool) -> Iterator[None]:
        yield
        if last:
            self._average()

    def _average(self) -> None:
        # A gradient elsewhere than in the buffer would silently stay this rank's own.
        for parameter, gradient in zip(self.model.parameters(), self._gradients, strict=True):
            assert parameter.grad is gradient, "a gradient has left the buffer"
        with self._stopwatch.time("reduce"), waiting():
            dist.all_reduce(self._buffer.div_(dist.get_world_size()))

    def discard(self) -> None:
        self._buffer.zero_()


def flat_gradients(parameters: list[nn.Parameter]) -> tuple[Tensor, list[Tensor]]:
    """Give all `parameters` gradients in one buffer of zeros: the buffer, its views by parameter.

    autograd adds to a gradient that is there, so they remain views of it.
    """
    first = parameters[0]
    assert all(p.dtype == first.dtype and p.device == first.device for p in parameters)
    buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=first.dtype, device=first.device)
    parts = buffer.split([p.numel() for p in parameters])
    gradients = [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return buffer, gradients
