"""A replica of the model on each rank: DistributedDataParallel, which averages the gradients."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from bigtrk.parallel.engines.engine import Piece, Shard, TorchEngine, even_share, flat_values
from bigtrk.parallel.engines.optimizers import adam_state
from bigtrk.parallel.engines.spec import EngineSpec, Sharding
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.world import Stopwatch

_ONE_BUCKET = 2**20  # MB; DDP allocates only as much as the gradients fill


class ReplicaEngine(TorchEngine):
    """An engine that holds the whole model and its optimizer state on each rank."""

    def __init__(
        self, replica: nn.Module, optimizer: OptimizerSettings, lr_factors: Mapping[str, float]
    ) -> None:
        super().__init__(replica, optimizer, lr_factors)
        self._replica = replica

    def shards(self) -> Iterator[Shard]:
        """Yields all parameters with their values on rank 0 only, since all ranks have the same."""
        first = dist.get_rank() == 0
        for name, parameter in self._replica.named_parameters():
            yield Shard(name, parameter, parameter.grad) if first else Shard(name)

    def pieces(self) -> Iterator[Piece]:
        world_size = dist.get_world_size()
        return replica_pieces(self._replica, self._optimizer, dist.get_rank(), world_size)

    def weights(self) -> dict[str, Tensor]:
        return {name: value.cpu() for name, value in self._replica.state_dict().items()}


def replica_pieces(
    model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, ranks: int
) -> Iterator[Piece]:
    """Yields the pieces of a replica; each rank writes an equal share of its values."""
    named = dict(model.named_parameters())
    share = even_share(sum(parameter.numel() for parameter in named.values()), rank, ranks)
    before = 0
    for name, parameter in named.items():
        state, n = adam_state(optimizer, parameter), parameter.numel()
        first, last = (min(max(end - before, 0), n) for end in (share.start, share.stop))
        values, updates = flat_values(parameter, state), state["step"]
        yield Piece(name, tuple(parameter.shape), 0, values, updates, range(first, last))
        before += n


class DDPEngine(ReplicaEngine):
    """PyTorch's DDP: gradients are averaged bucket by bucket while the backward pass runs.

    With `coalesced` all gradients are in one bucket, so that a step pays the network's latency
    once. A single rank averages nothing, and copies no gradients into buckets.
    """

    def __init__(
        self,
        settings: EngineSettings,
        model: nn.Module,
        optimizer: OptimizerSettings,
        stopwatch: Stopwatch,
        lr_factors: Mapping[str, float],
    ) -> None:
        super().__init__(model, optimizer, lr_factors)
        self._ddp: DistributedDataParallel | None = None
        if dist.get_world_size() == 1:
            return
        self.model = self._ddp = DistributedDataParallel(
            model,
            bucket_cap_mb=_ONE_BUCKET if settings.coalesced else None,
            # Otherwise each gradient exists twice, in a bucket and outside.
            gradient_as_bucket_view=True,
        )
        self._ddp.register_comm_hook(stopwatch, _timed_mean)
        with stopwatch.paused():
            self._settle_buckets()

    def _settle_buckets(self) -> None:
        """Makes DDP lay out its final buckets now, not after the first step.

        The layout decides how sums over ranks are rounded: a resumed run's first step would be
        rounded otherwise than the step it repeats.
        """
        model = self._replica
        # The pass goes through DDP's own forward, which alone makes it expect gradients.
        model.forward = lambda: sum(weight.sum() for weight in model.parameters())
        self.backward(self.model())
        del model.forward  # uncovers that of its class
        self.discard()

    @contextmanager
    def micro_step(self, last: bool) -> Iterator[None]:
        if last or self._ddp is None:
            yield
        else:
            with self._ddp.no_sync():
                yield


def _timed_mean(
    stopwatch: Stopwatch,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch insists on this annotation
) -> Future[Tensor]:
    """Averages a bucket as DDP does by default, and adds the duration to the stopwatch."""
    start = stopwatch.moment()
    gradients = bucket.buffer().div_(dist.get_world_size())
    future = dist.all_reduce(gradients, async_op=True).get_future()

    def finish(reduced: Future[list[Tensor]]) -> Tensor:
        stopwatch.add_since("reduce", start)
        return reduced.value()[0]

    timed: Future[Tensor] = future.then(finish)
    return timed


def _sharding(settings: EngineSettings, ranks: int) -> Sharding:
    name = "DDP, coalesced" if settings.coalesced else "DDP"
    # Several ranks make a DistributedDataParallel, which imports torch's compiler.
    return Sharding(name=name, level="none", ranks=ranks, module_bytes=(ranks > 1) * 68 * 2**20)


SPEC = EngineSpec(DDPEngine, _sharding, ("coalesced",), whole_matrices=True, automatic=True)
