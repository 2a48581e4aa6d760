"""Writes checkpoints while the training continues; each rank writes its share of the state."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor

from bigtrk.disk.files import disk_errors
from bigtrk.errors import AGAINST_DIVERGENCE, InputError
from bigtrk.machine import software
from bigtrk.parallel.collectives import gather_items, on_first_rank, together
from bigtrk.parallel.engines.averages import Averages
from bigtrk.parallel.engines.engine import Engine, Piece
from bigtrk.tracing import traced
from bigtrk.training.checkpoint.folder import (
    Found,
    commit,
    make_temporary,
    take_last_good,
    temporary_of,
)
from bigtrk.training.checkpoint.manifest import RANDOM, Checkpoint, Progress, Range, write_shard
from bigtrk.training.run_folder import CHECKPOINTS, checkpoint_name


def copied(
    engine: Engine, averages: Averages | None = None
) -> tuple[dict[str, Tensor], dict[str, Range]]:
    """Copies this rank's state to the host: tensors by name, and each parameter's range in them."""
    tensors = {f"{RANDOM}cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors[f"{RANDOM}cuda"] = torch.cuda.get_rng_state()
    pieces: dict[str, Range] = {}
    written = [piece for piece in engine.pieces() if piece.written]
    for piece in written:
        assert piece.name not in pieces, "a rank writes one piece of a parameter"
        assert piece.updates is not None, "what is written has its count of updates"
        first, last = piece.written.start, piece.written.stop
        pieces[piece.name] = (piece.start + first, piece.start + last, int(piece.updates))
    for piece in (*written, *(averages.pieces() if averages else ())):
        part = slice(piece.written.start, piece.written.stop)
        for kind, values in piece.values.items():
            tensors[f"{kind}/{piece.name}"] = values[part].to("cpu", copy=True)
    return tensors, pieces


def check_finite(tensors: dict[str, Tensor]) -> None:
    """Raises InputError for a tensor with NaN or infinity; the loss shows it one step too late."""
    for name, values in tensors.items():
        if not values.isfinite().all():
            raise InputError(f"{name} became NaN or infinite; {AGAINST_DIVERGENCE}")


def _shapes(engine: Engine) -> dict[str, tuple[int, ...]]:
    return {piece.name: piece.shape for piece in engine.pieces()}


@torch.no_grad()
def restore(
    engine: Engine, folder: Path, checkpoint: Checkpoint, averages: Averages | None = None
) -> None:
    """Loads a checkpoint, whatever engine and ranks wrote it; InputError for another model's."""
    if averages and not checkpoint.averaged:
        raise InputError(f"{folder}: lacks the averaged weights of this run; start a new run")
    if differ := sorted(_shapes(engine).items() ^ checkpoint.shapes.items()):
        raise InputError(f"{folder}: is of another model ({differ[0][0]} differs); start a new run")
    reader = _Reader(folder, checkpoint)
    for piece in (*engine.pieces(), *(averages.pieces() if averages else ())):
        with traced(piece.name):
            reader.fill(piece)
    if len(checkpoint.shards) == dist.get_world_size():
        reader.set_generators(dist.get_rank())


def stored_weights(folder: Path, checkpoint: Checkpoint, kind: str = "weight") -> dict[str, Tensor]:
    """Reads all weights by name (kind=AVERAGE: averaged weights); InputError for a bad file."""
    with disk_errors():
        reader = _Reader(folder, checkpoint)
    weights = {name: torch.empty(shape) for name, shape in checkpoint.shapes.items()}
    for name, weight in weights.items():
        reader.fill(Piece(name, tuple(weight.shape), 0, {kind: weight.view(-1)}))
    return weights


class _Reader:
    """Reads ranges of parameters from the files of a checkpoint that hold parts of them."""

    def __init__(self, folder: Path, checkpoint: Checkpoint) -> None:
        self._files = [
            safe_open(folder / shard.file, framework="pt") for shard in checkpoint.shards
        ]
        self._pieces: dict[str, list[tuple[int, int, int, int]]] = {}
        for file, shard in enumerate(checkpoint.shards):
            for name, piece in shard.pieces.items():
                self._pieces.setdefault(name, []).append((file, *piece))

    def fill(self, piece: Piece) -> None:
        """Fills the tensors of `piece` with the values stored for its range."""
        filled, end = 0, piece.start + len(next(iter(piece.values.values())))
        for file, start, stop, updates in self._pieces[piece.name]:
            if piece.updates is not None:
                piece.updates.fill_(updates)
            first, last = max(start, piece.start), min(stop, end)
            if first >= last:
                continue
            for kind, values in piece.values.items():
                stored = self._files[file].get_slice(f"{kind}/{piece.name}")
                values[first - piece.start : last - piece.start] = stored[
                    first - start : last - start
                ]
            filled += last - first
        assert filled == end - piece.start, f"{piece.name} is not whole"

    def set_generators(self, rank: int) -> None:
        """Restores the random generators that `rank` had saved."""
        file = self._files[rank]
        names = [name for name in file.keys() if name.startswith(RANDOM)]  # noqa: SIM118
        states = {name.removeprefix(RANDOM): file.get_tensor(name) for name in names}
        torch.set_rng_state(states["cpu"])
        if torch.cuda.is_available() and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"])


@dataclass(frozen=True)
class RunDescription:
    """The entries common to all checkpoints of a run. data: digest of the training events."""

    data: str
    engine: str
    configuration: dict[str, Any]


class Checkpointer:
    """Writes a run's checkpoints in a thread, one at a time, and loads them. All ranks call it
    together. An error on one rank is raised on all as InputError, at the next save or at the end.
    check_held: raises InputError if another process has taken over the run's folder.
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
        """Copies the state to the host; a thread then writes it while training continues."""
        self.wait()
        state = copied(self._engine, self._averages)
        shapes = _shapes(self._engine)
        self._saving = self._pool.submit(self._write, progress, shapes, *state)

    def wait(self) -> None:
        """Waits until the last checkpoint is on disk."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def load(self, found: Found | None = None) -> Progress:
        """Loads `found` or the newest good checkpoint; returns its progress. InputError if none."""
        self.wait()
        found = found or on_first_rank(take_last_good, self._run)
        together(lambda: restore(self._engine, found.folder, found.checkpoint, self._averages))
        return found.checkpoint.progress

    def _write(
        self,
        progress: Progress,
        shapes: dict[str, tuple[int, ...]],
        tensors: dict[str, Tensor],
        pieces: dict[str, Range],
    ) -> None:
        """Writes this rank's file in the thread; then rank 0 commits the checkpoint."""
        name, group = checkpoint_name(progress.step), self._group
        temporary = temporary_of(self._root, name)
        try:
            self._on_first_rank(lambda: make_temporary(self._root, name))
            together(check_finite, tensors, group=group)
            shard = together(write_shard, temporary, dist.get_rank(), tensors, pieces, group=group)
            checkpoint = Checkpoint(
                progress,
                shapes,
                tuple(gather_items(shard, group)),
                software=software(),
                averaged=self._averages is not None,
                **vars(self._description),
            )
            self._on_first_rank(lambda: commit(self._root, checkpoint))
        except InputError as error:
            raise InputError(f"checkpoint {name} could not be written: {error}") from None

    def _on_first_rank(self, write: Callable[[], None]) -> None:
        def checked() -> None:
            if dist.get_rank() == 0:
                self._check_held()
                write()

        together(checked, group=self._group)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._pool.shutdown()
