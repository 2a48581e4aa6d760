"""The first layer after which the rows of a sector are not those of the whole graph, and why.

Found by passes that are compared step by step, and by calling the torch function at fault again
with the whole graph's rows in the place of those that a sector does not know.
"""

import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bigtrk.graphs.sector import Sector
from bigtrk.models.failing_layer import told_layer
from bigtrk.models.protocol import Exchange
from bigtrk.proof.alignment import Aligned, Rows
from bigtrk.proof.lockstep import run_sectors
from bigtrk.proof.outcome import inputs_of, replica
from bigtrk.proof.trace import Step, Trace, changed, tensors_of

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

Steps = dict[Step, list[Tensor]]  # what a pass made
# Code in these folders is no user's own.
_INSTALLED = tuple({*sysconfig.get_paths().values(), str(Path(__file__).parent)})


def record(model: nn.Module, whole: Sector) -> Steps:
    """Runs `model` on a whole graph: all that it makes on its way, in order."""
    made: Steps = {}

    def note(step: Step, tensors: Sequence[Tensor]) -> None:
        made[step] = [tensor.detach().clone() for tensor in tensors]

    _run([Trace(replica(model), note)], [whole])
    return made


def coarsest(made: Steps) -> tuple[Step, torch.dtype]:
    """Finds the floating type of the fewest digits that a pass computes in, and where first."""
    types = [(step, tensor.dtype) for step, tensors in made.items() for tensor in tensors]
    return min(types, key=lambda pair: -torch.finfo(pair[1]).eps)


def first_difference(
    model: nn.Module, whole: Sector, parts: Sequence[Sector], tolerance: float, why: str | None
) -> str:
    """Names the first layer whose rows in `parts`, sectors of the graph `whole`, are not those of
    the whole, as some are not, and says why: `why`, or what is found out.
    """
    made = record(model, whole)
    ways = [_Way(Rows(whole, part), made, tolerance) for part in parts]
    _run([Trace(replica(model), way.note) for way in ways], parts)
    place = {step: i for i, step in enumerate(made)}
    faults = [(place[way.fault], k) for k, way in enumerate(ways) if way.fault]
    if not faults:
        return f"{told_layer(model, '')}: {why or UNKNOWN}"
    way = ways[min(faults)[1]]
    assert way.fault
    layer = told_layer(model, way.fault.blamed)
    if way.function is None:
        return f"{layer}: {why or UNKNOWN}"
    probe = _Probe(replica(model), way, way.function)
    traces = [probe if each is way else Trace(replica(model), _ignore) for each in ways]
    _run(traces, parts)
    return f"{layer}, {way.function.what.strip('_')}{probe.line}: {why or probe.why}"


def _run(traces: Sequence[Trace], sectors: Sequence[Sector]) -> None:
    def run(trace: Trace, sector: Sector, exchange: Exchange) -> Tensor:
        with trace:
            made: Tensor = trace.model(*inputs_of(sector), trace.sending(exchange))
            return made

    pairs = zip(traces, sectors, strict=True)
    run_sectors([partial(run, trace, sector) for trace, sector in pairs], sectors)


def _ignore(step: Step, tensors: Sequence[Tensor]) -> None:
    """Notes nothing."""


class _Source(NamedTuple):
    """The step that made a tensor, and which of the step's tensors it is."""

    step: Step
    place: int


class _Way:
    """A sector's way through the model, beside that of the whole graph.

    fault: the first step between layers where rows differ; function: the first torch function that
    gives other rows since those between layers were last right.
    """

    def __init__(self, rows: Rows, whole: Steps, tolerance: float) -> None:
        self._rows, self._whole, self._tolerance = rows, whole, tolerance
        self.fault: Step | None = None
        self.function: Step | None = None

    def note(self, step: Step, tensors: Sequence[Tensor]) -> None:
        if self.fault:
            return
        found = self.aligned(step, tensors)
        differs = not self.agrees(found)
        if differs and step.is_whole:
            self.fault = step
        elif differs and self.function is None:
            self.function = step
        elif found and step.is_whole:
            self.function = None

    def aligned(self, step: Step, tensors: Iterable[Tensor]) -> list[Aligned]:
        """Aligns what a step made here with what it made of the whole graph."""
        pairs = zip(self._whole.get(step, []), tensors, strict=False)
        found = [self._rows.align(whole, part) for whole, part in pairs]
        return [each for each in found if each]

    def aligned_at(self, source: _Source, tensor: Tensor) -> Aligned | None:
        """Aligns a tensor with that which its source made of the whole graph."""
        whole = self._whole.get(source.step, [])
        return self._rows.align(whole[source.place], tensor) if source.place < len(whole) else None

    def agrees(self, found: Iterable[Aligned]) -> bool:
        """Says whether all rows are those of the whole graph."""
        return all(each.difference <= self._tolerance for each in found)


class _Probe(Trace):
    """Finds out why a torch function gives other rows at a step of a sector's way.

    why: what was found; line: where in the user's own code, as ` in net.py:17`.
    """

    def __init__(self, model: nn.Module, way: _Way, target: Step) -> None:
        super().__init__(model, self._remember)
        self._way, self._target = way, target
        self._sources: dict[Any, _Source] = {}
        self._alive: list[Tensor] = []  # or another tensor took its memory, and its place above
        self._counted = False
        self.why, self.line = UNKNOWN, ""

    def _remember(self, step: Step, tensors: Sequence[Tensor]) -> None:
        for place, tensor in enumerate(tensors):
            self._sources[_identity(tensor)] = _Source(step, place)
        self._alive.extend(tensors)

    def called(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        """Calls a torch function; that of the target also with rows mended."""
        if self.next_step(function.__name__) == self._target:
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
        with torch.no_grad():
            made = changed(function, args, function(*args, **kwargs))
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
