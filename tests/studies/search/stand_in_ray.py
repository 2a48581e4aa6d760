"""Stands for Ray in tests: its hosts are this one, and its tasks are processes."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.distributed.ranks import FORKSERVER


class RayError(Exception):
    """Stands for the error that Ray raises."""


class TaskCancelledError(RayError):
    """Stands for that of a task that was cancelled."""


@dataclass
class Task:
    """A call that waits, runs, or has ended."""

    cpus: int
    gpus: int
    call: tuple[Any, ...]
    process: Any = None
    ends: tuple[Connection, Connection] = field(default_factory=FORKSERVER.Pipe)
    cancelled: bool = False

    def start(self) -> None:
        self.process = FORKSERVER.Process(
            target=_call, args=(self.ends[1], list(range(self.gpus)), *self.call), daemon=True
        )
        self.process.start()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.exitcode is None

    @property
    def has_ended(self) -> bool:
        return self.cancelled if self.process is None else self.process.exitcode is not None


class StandInRay(ModuleType):
    """A cluster of hosts with so many cores and GPUs; tasks begin in their order."""

    def __init__(self, hosts: Sequence[dict[str, float]]) -> None:
        super().__init__("ray")
        self.hosts, self.tasks, self.most_at_once = list(hosts), list[Task](), 0
        self.exceptions = SimpleNamespace(RayError=RayError, TaskCancelledError=TaskCancelledError)
        self._joined = False
        self.said = ""  # of a task whose worker died

    def is_initialized(self) -> bool:
        return self._joined

    def init(self, **options: Any) -> None:
        assert options["address"] == "auto", "none is started without a word"
        if not self.hosts:
            raise ConnectionError("Could not find any running Ray instance")
        self._joined = True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": host} for host in self.hosts]

    def remote(
        self, num_cpus: int, num_gpus: int, max_retries: int
    ) -> Callable[[Callable[..., Any]], Any]:
        assert max_retries == 0, "a training would run twice"

        def prepared(function: Callable[..., Any]) -> Any:
            def hand_in(*arguments: Any) -> Task:
                self.tasks.append(Task(num_cpus, num_gpus, (function, *arguments)))
                return self.tasks[-1]

            return SimpleNamespace(remote=hand_in)

        return prepared

    def wait(self, tasks: list[Task], timeout: float) -> tuple[list[Task], list[Task]]:
        assert timeout == 0, "a searcher looks, and does not wait"
        for task in self.tasks:
            running = [one for one in self.tasks if one.runs]
            self.most_at_once = max(self.most_at_once, len(running))
            free = sum(host["CPU"] for host in self.hosts) - sum(one.cpus for one in running)
            if task.process is None and not task.cancelled and task.cpus <= free:
                task.start()
        ended = [task for task in tasks if task.has_ended]
        return ended, [task for task in tasks if task not in ended]

    def get(self, task: Task) -> Any:
        if task.cancelled:
            raise TaskCancelledError("Task was cancelled.")
        if task.process.exitcode:
            raise RayError(self.said)
        return task.ends[0].recv()

    def cancel(self, task: Task) -> None:
        task.cancelled = True
        if task.runs:
            os.kill(task.process.pid, signal.SIGINT)


def _call(end: Connection, gpus: list[int], function: Callable[..., Any], *arguments: Any) -> None:
    here = ModuleType("ray")
    here.get_gpu_ids = lambda: gpus  # type: ignore[attr-defined]
    sys.modules["ray"] = here
    try:
        end.send(function(*arguments))
    except KeyboardInterrupt:
        sys.exit(1)
