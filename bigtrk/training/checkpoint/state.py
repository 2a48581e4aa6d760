"""Copies between an engine's memory and the files of a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor

from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError, reason
from bigtrk.parallel.engines.averages import Averages
from bigtrk.parallel.engines.engine import Engine
from bigtrk.parallel.engines.pieces import Piece
from bigtrk.tracing import traced
from bigtrk.training.checkpoint.files import RANDOM
from bigtrk.training.checkpoint.manifest import Checkpoint, shard_name


@dataclass(frozen=True)
class Copied:
    """The state that a rank writes: tensors by name in the file, pieces as in the manifest, and the
    shapes of all parameters.
    """

    tensors: dict[str, Tensor]
    pieces: dict[str, tuple[int, int, int]]
    shapes: dict[str, tuple[int, ...]]


def copied(engine: Engine, averages: Averages | None = None) -> Copied:
    """Copies this rank's part of the state, and of averaged weights, to host memory of its own."""
    found = Copied(_generators(), {}, {})
    for piece in engine.pieces():
        found.shapes[piece.name] = piece.shape
        first, last = piece.written.start, piece.written.stop
        if first == last:
            continue
        assert piece.name not in found.pieces, "a rank writes one piece of a parameter"
        assert piece.updates is not None, "what is written has its count of updates"
        updates = int(piece.updates)
        found.pieces[piece.name] = (piece.start + first, piece.start + last, updates)
        found.tensors.update(_on_host(piece))
    for piece in averages.pieces() if averages else ():
        found.tensors.update(_on_host(piece))
    return found


def _on_host(piece: Piece) -> dict[str, Tensor]:
    """Copies what is written of a piece, by name in the file."""
    first, last = piece.written.start, piece.written.stop
    return {
        f"{kind}/{piece.name}": values[first:last].to("cpu", copy=True)
        for kind, values in piece.values.items()
    }


def check_finite(state: Copied) -> None:
    """Refuses values that are not finite. Gradients that are not show only in the next step's loss,
    which stops the run: too late for a checkpoint in between.

    Raises:
        InputError: a value is not finite; names its tensor.
    """
    for name, values in state.tensors.items():
        if not values.isfinite().all():
            raise InputError(
                f"{name} is not finite; lower optimizer.lr or set optimizer.gradient_clipping, and "
                f"resume from the checkpoint before"
            )


@torch.no_grad()
def restore(
    engine: Engine, folder: Path, checkpoint: Checkpoint, averages: Averages | None = None
) -> None:
    """Gives `engine` and `averages` the state in `folder`, whichever engine and ranks wrote it.

    Raises:
        InputError: the state is that of another model, or has no averages; or its random numbers
            cannot go on.
    """
    if averages and not checkpoint.averaged:
        raise InputError(f"{folder}: has no averaged weights (training.average_decay)")
    shapes = {piece.name: piece.shape for piece in engine.pieces()}
    if shapes != checkpoint.shapes:
        differ = sorted(shapes.items() ^ checkpoint.shapes.items())
        raise InputError(f"{folder}: of another model (such as in {differ[0][0]})")
    reader = _Reader(folder, checkpoint)
    for piece in engine.pieces():
        with traced(piece.name):
            reader.fill(piece)
    for piece in averages.pieces() if averages else ():
        reader.fill(piece)
    if len(checkpoint.shards) == dist.get_world_size():
        try:
            _set_generators(reader.generators(dist.get_rank()))
        except (KeyError, RuntimeError, TypeError) as error:
            file = folder / shard_name(dist.get_rank())
            raise InputError(
                f"{file}: holds no state of the random generators ({reason(error)}); remove this "
                f"checkpoint"
            ) from None


def stored_weights(folder: Path, checkpoint: Checkpoint, kind: str = "weight") -> dict[str, Tensor]:
    """Reads the whole model's weights in `folder`, by name, whichever engine and ranks wrote them.

    kind: "weight", or AVERAGE of a checkpoint that has averaged weights.

    Raises:
        InputError: a file cannot be read.
    """
    with disk_errors():
        reader = _Reader(folder, checkpoint)
    weights = {name: torch.empty(shape) for name, shape in checkpoint.shapes.items()}
    for name, weight in weights.items():
        reader.fill(Piece(name, tuple(weight.shape), 0, {kind: weight.view(-1)}))
    return weights


class _Reader:
    """Reads ranges of parameters from the files that have a part of them."""

    def __init__(self, folder: Path, checkpoint: Checkpoint) -> None:
        self._files = [
            safe_open(folder / shard.file, framework="pt") for shard in checkpoint.shards
        ]
        self._pieces: dict[str, list[tuple[int, int, int, int]]] = {}
        for file, shard in enumerate(checkpoint.shards):
            for name, piece in shard.pieces.items():
                self._pieces.setdefault(name, []).append((file, *piece))

    def fill(self, piece: Piece) -> None:
        """Copies into the memory of `piece` what the files have of it."""
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

    def generators(self, rank: int) -> dict[str, Tensor]:
        file = self._files[rank]
        names = [name for name in file.keys() if name.startswith(RANDOM)]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in names}


def _generators() -> dict[str, Tensor]:
    states = {f"{RANDOM}cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states[f"{RANDOM}cuda"] = torch.cuda.get_rng_state()
    return states


def _set_generators(states: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(states[f"{RANDOM}cpu"])
    if torch.cuda.is_available() and f"{RANDOM}cuda" in states:
        torch.cuda.set_rng_state(states[f"{RANDOM}cuda"])
