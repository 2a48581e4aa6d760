"""The exponential moving average of a model's weights, under every engine.

Each rank averages the values that it alone writes to a checkpoint. So the ranks together hold the
average once, however an engine shards or copies the weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor

from bigtrk.parallel.collectives import collective_device
from bigtrk.parallel.engines.engine import AVERAGE, Engine, Piece
from bigtrk.tracing import waiting

Parts = dict[str, Tensor]  # by parameter, the values [n] that this rank writes


class Averages:
    """The moving average of an engine's weights, which starts as the weights when it is made.

    decay: the factor of the average at each step; the new weights have the factor 1 - decay.
    """

    def __init__(self, engine: Engine, decay: float) -> None:
        self._engine, self._decay = engine, decay
        self._parts = _written_weights(engine)

    @torch.no_grad()
    def update(self) -> None:
        """Adds the weights to the average; call it after each step."""
        for piece in self._engine.pieces():
            if piece.written:
                # A sum with a factor (lerp, alpha) may be rounded once or twice, which differs
                # between the vectors and the rest of a tensor, and so between shards.
                part = self._parts[piece.name].mul_(self._decay)
                part.add_(_written(piece) * (1 - self._decay))

    def pieces(self) -> Iterator[Piece]:
        """Yields this rank's part of the average; writing to it changes the average."""
        for piece in self._engine.pieces():
            if piece.written:
                values = {AVERAGE: self._parts[piece.name]}
                start, n = piece.start + piece.written.start, len(piece.written)
                yield Piece(piece.name, piece.shape, start, values, written=range(n))

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Puts the averaged weights into the model while the block runs. Collective.

        If the block fails, the average stays in the model: putting the weights back takes all
        ranks, and others may not have failed.
        """
        weights = _written_weights(self._engine)
        _put(self._engine, self._parts)
        yield
        _put(self._engine, weights)

    def weights(self) -> dict[str, Tensor]:
        """Returns the averaged weights of the whole model, as `Engine.weights` does. Collective."""
        with self.in_model():
            # What an engine returns may be the memory that gets the weights back.
            return {name: value.clone() for name, value in self._engine.weights().items()}


def _written(piece: Piece) -> Tensor:
    return piece.values["weight"][piece.written.start : piece.written.stop]


def _written_weights(engine: Engine) -> Parts:
    """Copies the weights that this rank writes to a checkpoint."""
    return {piece.name: _written(piece).clone() for piece in engine.pieces() if piece.written}


@torch.no_grad()
def _put(engine: Engine, parts: Parts) -> None:
    """Sets all copies of the engine's weights to `parts`, of which each rank has a share.

    The parameters are made whole on each rank one after another. Collective.
    """
    for name, pieces in groupby(list(engine.pieces()), key=lambda piece: piece.name):
        copies = list(pieces)
        size, dtype = torch.Size(copies[0].shape).numel(), copies[0].values["weight"].dtype
        # Added to -0.0 any value stays what it is; added to 0.0, -0.0 would not.
        whole = torch.full((size,), -0.0, dtype=dtype, device=collective_device())
        for copy in copies:
            if copy.written:
                start = copy.start + copy.written.start
                whole[start : start + len(parts[name])] = parts[name]
        with waiting():
            dist.all_reduce(whole)
        for copy in copies:
            weight = copy.values["weight"]
            weight.copy_(whole[copy.start : copy.start + len(weight)])
