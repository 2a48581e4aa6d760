"""Batches that are read ahead travel beside the computation, in the right order: on a GPU that only
notes what it is asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from bigtrk import process
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.routing import Assignment
from bigtrk.parallel.world import World, make_world
from bigtrk.process import uploaded
from bigtrk.training.data.batch import BatchMaker, Lane, Loader
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import source
from tests.distributed.ranks import ALONE

GPU = torch.device("cuda", 0)
EVENTS = 3
CURRENT = ContextVar("stream", default="main")  # of each thread


@dataclass
class Stream:
    """A stream: a name, and what it was asked to wait for."""

    gpu: "NotingGPU"
    name: str

    def record_event(self) -> str:
        event = f"event {len(self.gpu.log)}"
        self.gpu.log.append((self.name, "records", event))
        return event

    def wait_event(self, event: str) -> None:
        self.gpu.log.append((self.name, "waits", event))


@dataclass
class NotingGPU:
    """A GPU that notes copies and streams in `log`, and keeps tensors on the host."""

    log: list[tuple[str, str, Any]] = field(default_factory=list)
    pinned: dict[int, Tensor] = field(default_factory=dict)  # which live as long as this
    read: list[int] = field(default_factory=list)
    sent: int = 0  # bytes

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before = CURRENT.set(stream.name)
        yield
        CURRENT.reset(before)


class There(Tensor):
    """A tensor on the GPU, or what an operation there makes of one."""

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> NotingGPU:
    made = NotingGPU()
    to = Tensor.to

    def pin(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        copy = torch.empty(tensor.shape, dtype=dtype).copy_(tensor)
        made.pinned[copy.data_ptr()] = copy
        return copy

    def move(tensor: Tensor, *arguments: Any, **options: Any) -> Tensor:
        if arguments != (GPU,):
            return to(tensor, *arguments, **options)
        beside = options == {"non_blocking": True} and tensor.data_ptr() in made.pinned
        made.log.append((CURRENT.get(), "copies" if beside else "stops", tensor.data_ptr()))
        made.sent += tensor.nbytes
        return tensor.as_subclass(There)

    def read(tensor: Tensor, stream: Stream) -> None:
        assert stream.name == "main"
        made.read.append(tensor.data_ptr())

    monkeypatch.setattr(process, "pinned", pin)
    monkeypatch.setattr(Tensor, "to", move)
    monkeypatch.setattr(Tensor, "record_stream", read)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: Stream(made, "beside"))
    monkeypatch.setattr(torch.cuda, "stream", made.stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Stream(made, CURRENT.get()))
    return made


class OnGPU(World):
    """A world of one rank on a GPU."""

    @property
    def device(self) -> torch.device:
        return GPU


def test_a_step_waits_for_its_own_copies_alone(gpu: NotingGPU) -> None:
    configuration = Configuration.model_validate({"training": {"pt_weight": 0.3}})
    events, copies = [source(seed, 1) for seed in range(EVENTS)], list[int]()
    with process_group(ALONE):
        plain = make_world(ALONE, [])
        world = OnGPU(plain.ranks, plain.groups, plain.stopwatch, plain.memory)
        maker = BatchMaker(configuration, world)
        routes = [[[Assignment(event, (0,), 1, 0)]] for event in range(EVENTS)]
        for step, [share] in enumerate(Loader(maker.of(events), world).steps(routes)):
            [one] = share.batches
            assert one.pt is not None
            used = [one.x, one.edge_features, one.edge_index, one.truth.label]
            used += [one.truth.weight, one.pt.log_pt, one.pt.known]
            assert all(isinstance(tensor, There) for tensor in used)
            assert {tensor.data_ptr() for tensor in used} <= set(gpu.read)
            waits = [event for who, what, event in gpu.log if (who, what) == ("main", "waits")]
            assert len(waits) == step + 1
            copies.append(copies_before(gpu, waits[-1]))
    assert copies == [copies[0] * (step + 1) for step in range(EVENTS)], "each waits for its own"
    assert {who for who, what, _ in gpu.log if what == "copies"} == {"beside"}


def copies_before(gpu: NotingGPU, event: str) -> int:
    """Counts the copies of the batches' stream that an event of it comes after."""
    recorded = gpu.log.index(("beside", "records", event))
    return sum((who, what) == ("beside", "copies") for who, what, _ in gpu.log[:recorded])


def test_a_cpu_has_no_lane(gpu: NotingGPU, monkeypatch: pytest.MonkeyPatch) -> None:
    made = uploaded(torch.ones(3), GPU)
    assert gpu.log == [("main", "copies", made.data_ptr())], "in order, where nothing reads ahead"
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: pytest.fail("a stream was made"))
    lane, rows = Lane(torch.device("cpu")), torch.ones(3)
    read = lane.read(lambda: [rows])
    assert read[1] is None
    assert lane.hand_over(read) == [rows]
