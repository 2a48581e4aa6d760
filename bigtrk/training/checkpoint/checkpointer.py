"""Saving and loading a run's state: training waits only for the copy to host memory."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch.distributed as dist

from bigtrk.console import say
from bigtrk.errors import InputError
from bigtrk.machine import software
from bigtrk.parallel.collectives import gather_items, on_first_rank, together
from bigtrk.parallel.engines.averages import Averages
from bigtrk.parallel.engines.engine import Engine
from bigtrk.training.checkpoint.files import write_shard
from bigtrk.training.checkpoint.folder import (
    Found,
    commit,
    last_good,
    make_temporary,
    set_aside,
    temporary_of,
    without_lost_best,
)
from bigtrk.training.checkpoint.manifest import Checkpoint, ShardFile
from bigtrk.training.checkpoint.progress import Progress
from bigtrk.training.checkpoint.state import Copied, check_finite, copied, restore
from bigtrk.training.run_folder import CHECKPOINTS, checkpoint_name


@dataclass(frozen=True)
class RunDescription:
    """The entries of every checkpoint of a run beside its state. data: the events trained on."""

    data: str
    engine: str
    configuration: dict[str, Any]


class Checkpointer:
    """Writes the checkpoints of a run in a thread, one at a time, and loads them.

    An error in the thread of one rank is raised on all, at the next save or at the end. All methods
    are collective. check_held: rank 0 calls it before it writes; it raises InputError where the
    run's folder has become another process's. averages: averaged weights, a part of the state.
    """

    def __init__(
        self,
        run: Path,
        engine: Engine,
        description: RunDescription,
        check_held: Callable[[], None],
        averages: Averages | None = None,
    ) -> None:
        self._run, self._root = run, run / CHECKPOINTS
        self._engine, self._description = engine, description
        self._check_held, self._averages = check_held, averages
        # A group of its own: the thread's collectives must not mix with the training's.
        self._group = dist.new_group(backend="gloo")
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._saving: Future[None] | None = None

    def save(self, progress: Progress) -> None:
        """Copies the state, which is then written while training goes on.

        Raises:
            InputError: the checkpoint before could not be written.
        """
        self.wait()
        state = copied(self._engine, self._averages)
        self._saving = self._pool.submit(self._write, progress, state)

    def wait(self) -> None:
        """Waits until the last save is on disk.

        Raises:
            InputError: a rank could not write.
        """
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def load(self, found: Found | None = None) -> Progress:
        """Returns the engine to the checkpoint `found`, or else to the newest good one.

        Raises:
            InputError: none is good.
        """
        self.wait()
        found = found or find(self._run)
        together(lambda: restore(self._engine, found.folder, found.checkpoint, self._averages))
        return found.checkpoint.progress

    def _write(self, progress: Progress, state: Copied) -> None:
        """Runs in the thread: every rank writes its file, then rank 0 commits the checkpoint."""
        rank, name = dist.get_rank(), checkpoint_name(progress.step)
        temporary = temporary_of(self._root, name)
        try:
            self._on_first_rank(lambda: make_temporary(self._root, name))
            together(lambda: check_finite(state), self._group)
            shard = together(
                lambda: write_shard(temporary, rank, state.tensors, state.pieces), self._group
            )
            shards = gather_items(shard, self._group)
            checkpoint = self._describe(progress, state, shards)
            self._on_first_rank(lambda: commit(self._root, checkpoint))
        except InputError as error:
            raise InputError(f"checkpoint {name} could not be written: {error}") from None

    def _on_first_rank(self, write: Callable[[], None]) -> None:
        def checked() -> None:
            if dist.get_rank() == 0:
                self._check_held()
                write()

        together(checked, self._group)

    def _describe(
        self, progress: Progress, state: Copied, shards: Sequence[ShardFile]
    ) -> Checkpoint:
        return Checkpoint(
            progress,
            state.shapes,
            tuple(shards),
            software=software(),
            averaged=self._averages is not None,
            **vars(self._description),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._pool.shutdown()


def find(run: Path) -> Found:
    """Finds the newest good checkpoint; damaged ones are named and set aside, and a best one that
    is damaged is forgotten. Collective.

    Raises:
        InputError: there is none.
    """

    def search() -> Found:
        found = last_good(run)
        said = set_aside(found)
        if said:
            say(said)
        found, said = without_lost_best(found)
        if said:
            say(said)
        return found

    return on_first_rank(search)
