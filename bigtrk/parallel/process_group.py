"""The world's process group, from the ranks' meeting until the last has left."""

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]  # not in __all__

from bigtrk.parallel.liveness.heartbeat import Patience
from bigtrk.parallel.liveness.watchdog import Watchdog
from bigtrk.parallel.meeting import meet
from bigtrk.parallel.ranks import Ranks, publish
from bigtrk.process.threads import cores_for_this_thread
from bigtrk.tracing import traced, waiting


@contextmanager
def process_group(ranks: Ranks, patience: Patience = Patience()) -> Iterator[None]:  # noqa: B008
    """Holds the world's process group (nccl on accelerators, gloo on CPUs) while the block runs.
    Several ranks are watched from their meeting on. On CPUs other threads have one core meanwhile.

    Raises:
        RankError: the ranks do not meet.
    """
    on_cuda = ranks.device.type == "cuda"
    if on_cuda:
        torch.cuda.set_device(ranks.device)
    else:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.update(publish(ranks))
    # What a CPU reads and samples for a GPU has all cores.
    with nullcontext() if on_cuda else cores_for_this_thread(), _met(ranks, patience):
        yield


@contextmanager
def _met(ranks: Ranks, patience: Patience) -> Iterator[None]:
    backend = "nccl" if ranks.device.type == "cuda" else "gloo"
    if ranks.world_size == 1:
        # It takes no port, as several single-rank runs may share a host.
        with _joined(backend, ranks, HashStore()):
            yield
        return
    with traced("meeting"):
        met = meet(ranks, patience.silent)
    with Watchdog(ranks, met, patience), _joined(backend, ranks, met.store):
        yield
        with waiting():
            dist.barrier()


@contextmanager
def _joined(backend: str, ranks: Ranks, store: Store) -> Iterator[None]:
    with traced("joining"), waiting():
        dist.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.world_size)
    try:
        yield
    finally:
        close_process_group()


def close_process_group() -> None:
    """Destroys the process group, leaving its threads nothing to do while the interpreter ends.

    DistributedDataParallel leaks references to the group, so gloo's threads outlive it. One that
    drops its last piece of work (which holds a Python object) during interpreter shutdown aborts
    the process: 6 runs in 50 with torch 2.13. Collecting garbage, then yielding the interpreter
    lock for a moment, lets them finish.
    """
    gc.collect()
    # DeepSpeed keeps groups of its own, with which the next training of this process would fail.
    deepspeed = sys.modules.get("deepspeed.comm")
    if deepspeed is not None and deepspeed.is_initialized():
        deepspeed.destroy_process_group()
    else:
        dist.destroy_process_group()
    time.sleep(0.1)
