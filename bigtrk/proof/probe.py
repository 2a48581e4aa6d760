"""Why the rows of a sector are not those of the whole graph after a torch function: it is called
again with the whole graph's rows in the place of those that a sector does not know.
"""

import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from bigtrk.proof.trace import Step, Trace, changed, name_of, tensors_of
from bigtrk.proof.way import Source, Way

RANDOM = "gives other rows in a second pass over the same graph: draw nothing at random (dropout)"
ORDER = (
    "gives other rows where nodes and edges come in another order, as they do in sectors: sum, or "
    "take the maximum, over a node's edges"
)
HALO = (
    "reads halo rows it must not, which are not those of their owners: a sector lacks some of a "
    "halo node's edges, so exchange rows before an edge reads them"
)
COUNTED = (
    "reads, at halo nodes, what it counts over its sector's edges (a degree), which lack some of "
    "theirs: count in the whole graph, and read it as a feature"
)
EDGES = (
    "reads rows of edges that end at halo nodes, some of whose other edges its sector lacks: what "
    "is normalised over the edges that end at a node may be summed there, not at their sources"
)
MIXED = (
    "normalises or reduces over all rows of its sector (the batch), or reads how many there are: a "
    "node's row may depend on the edges that end at it and their other ends alone"
)
UNKNOWN = "gives other rows in a sector than in the whole graph"

# Code in these folders is no user's own.
_INSTALLED = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parent),
)


class Probe(Trace):
    """Finds out why a torch function gives other rows at a step of a sector's way.

    why: what was found; line: where in the user's own code, as ` in net.py:17`.
    """

    def __init__(self, model: nn.Module, way: Way, target: Step) -> None:
        super().__init__(model, self._remember)
        self._way, self._target = way, target
        self._sources: dict[Any, Source] = {}
        self._alive: list[Tensor] = []  # or another tensor took its memory, and its place above
        self._counted = False
        self.why, self.line = UNKNOWN, ""

    def _remember(self, step: Step, tensors: Sequence[Tensor]) -> None:
        for place, tensor in enumerate(tensors):
            self._sources[_identity(tensor)] = Source(step, place)
        self._alive.extend(tensors)

    def called(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        """Calls a torch function; that of the target also with rows mended."""
        if self.next_step(name_of(function)) == self._target:
            self.line = users_line(_callers())
            self.why = self._experiment(function, args, kwargs)
        return super().called(function, args, kwargs)

    def _experiment(self, function: Callable[..., Any], args: Any, kwargs: Any) -> str:
        if self._right_with("nodes", function, args, kwargs):
            return COUNTED if self._counted else HALO
        return EDGES if self._right_with("edges", function, args, kwargs) else MIXED

    def _right_with(self, of: str, function: Callable[..., Any], args: Any, kwargs: Any) -> bool:
        """Says whether the function gives the right rows of arguments whose rows of halo nodes, or
        of edges that end there, are the whole graph's.
        """
        self._counted = torch.is_grad_enabled()
        args, kwargs = self._mended(of, args), self._mended(of, kwargs)
        try:
            with torch.no_grad():
                made = changed(function, args, function(*args, **kwargs))
        except (RuntimeError, TypeError, ValueError, IndexError):
            return False  # it bears no other arguments than its own
        tensors = [tensor for tensor in tensors_of(made) if tensor.is_floating_point()]
        return self._way.agrees(self._way.aligned(self._target, tensors))

    def _mended(self, of: str, value: Any) -> Any:
        """Copies a nested argument, and mends the rows `of` nodes or edges in it."""
        if isinstance(value, dict):
            return {key: self._mended(of, each) for key, each in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._mended(of, each) for each in value)
        if not isinstance(value, Tensor):
            return value
        source = self._sources.get(_identity(value))
        found = self._way.aligned_at(source, value) if source else None
        if found is None or found.of != of:
            return value.detach().clone()
        if not torch.equal(found.mended(), found.found):
            self._counted &= not value.requires_grad  # what is learnt has a gradient
        return found.mended()


def _identity(tensor: Tensor) -> Any:
    """Tells a tensor from others, but not from itself within a function with its own gradients."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def users_line(frames: Iterable[FrameType]) -> str:
    """Says which line is the innermost of `frames`, innermost first, in code that is neither
    installed nor this package's: ` in net.py:17`, or nothing.
    """
    for frame in frames:
        path = frame.f_code.co_filename
        if not path.startswith((*_INSTALLED, "<")):
            return f" in {Path(path).name}:{frame.f_lineno}"
    return ""


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
