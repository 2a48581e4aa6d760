"""The first layer after which the rows of a sector are not those of the whole graph, and why.

A pass over the whole graph is recorded step by step: what layers read and give, what goes to the
exchange, and what each torch function gives in between. The passes over the sectors are compared
with it as they run. The first torch function that gives other rows is called again with the whole
graph's rows in the place of those that the sector does not know: which of these mend its result
says what it read.

Shapes: N nodes of a sector of which the first n_owned are owned, E edges.
"""

import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from bigtrk.graphs.sector import Sector
from bigtrk.models.protocol import Exchange, told
from bigtrk.proof.sectors import inputs_of, relative, replica, run_sectors

_HALO = (
    "reads halo rows it must not, which are not those of their owners: a sector lacks some of a "
    "halo node's edges, so exchange rows before an edge reads them"
)
_COUNTED = (
    "reads, at halo nodes, what it counts over its sector's edges (a degree), which lack some of "
    "theirs: count in the whole graph, and read it as a feature"
)
_EDGES = (
    "reads rows of edges that end at halo nodes, some of whose other edges its sector lacks: what "
    "is normalised over the edges that end at a node may be summed there, not at their sources"
)
_MIXED = (
    "normalises or reduces over all rows of its sector (the batch), or reads how many there are: a "
    "node's row may depend on the edges that end at it and their other ends alone, read once"
)
_UNKNOWN = "gives other rows in a sector than in the whole graph"
# Values between layers are compared with at least this: some are zero but for rounding.
_LEAST = 1e-6
# Code in these folders is no user's own.
_INSTALLED = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]),
)
Of = Literal["nodes", "edges", "graph"]


class Step(NamedTuple):
    """A place on a model's way: the `n`-th time that `layer` does `what`.

    what: "reads" or "gives" of a layer as a whole, "sends" to the exchange; else the name of a
    torch function that is called in it. blamed: the layer at fault if the rows here are wrong and
    those before were right.
    """

    layer: str
    what: str
    n: int
    blamed: str

    @property
    def is_whole(self) -> bool:
        """Whether the tensors are those between layers, not those within one."""
        return self.what in ("reads", "gives", "sends")


Steps = dict[Step, list[Tensor]]  # what a pass made, in order


class _Aligned(NamedTuple):
    """A sector's tensor `found`, and `expected`, the whole graph's in the same rows, which lie
    along `axis`; `sure`: those that a sector knows, of its owned nodes, or of edges that end there.
    """

    found: Tensor
    expected: Tensor
    of: Of
    axis: int
    sure: Tensor

    @property
    def difference(self) -> float:
        """Measures how far the rows differ that the sector knows."""
        rows = self.sure.nonzero()[:, 0]
        found, expected = (one.index_select(self.axis, rows) for one in self[:2])
        return relative(found, expected, _LEAST)

    def mended(self) -> Tensor:
        """Puts the whole graph's rows in the place of those that the sector does not know."""
        shape = [-1 if axis == self.axis else 1 for axis in range(self.found.dim())]
        return torch.where(self.sure.view(shape), self.found, self.expected)


class _Rows:
    """The rows of a sector in the whole graph that it is a part of."""

    def __init__(self, whole: Sector, part: Sector) -> None:
        owned = torch.arange(part.n_nodes) < part.n_owned
        nodes, edges = part.node_id, whole.edge_id.argsort()[part.edge_id]
        # (rows of the whole's tensor, of the part's): the whole's of each of these, and if known.
        self._kinds: dict[tuple[int, int], tuple[Of, Tensor, Tensor]] = {
            (whole.n_nodes, part.n_owned): ("nodes", nodes[: part.n_owned], owned[: part.n_owned]),
            (whole.n_nodes, part.n_nodes): ("nodes", nodes, owned),
            (whole.n_edges, part.n_edges): ("edges", edges, part.owns_edge),
        }

    def align(self, whole: Tensor, part: Tensor) -> _Aligned | None:
        """Aligns what was made of the whole with what was made of the sector; None where neither
        nodes nor edges can be told in them. Tensors without rows are compared as they are.
        """
        whole, part = whole.detach(), part.detach()
        if whole.dim() != part.dim():
            return None
        for axis, pair in enumerate(zip(whole.shape, part.shape, strict=True)):
            if pair in self._kinds:
                of, rows, sure = self._kinds[pair]
                expected = whole.index_select(axis, rows)
                same = expected.shape == part.shape
                return _Aligned(part, expected, of, axis, sure) if same else None
        if whole.shape != part.shape:
            return None
        found = part.reshape(-1)
        return _Aligned(found, whole.reshape(-1), "graph", 0, torch.ones_like(found).bool())


class _Trace(TorchFunctionMode):
    """A forward pass of `model`, all of whose steps are recorded in `made`. The steps of two
    passes are the same wherever these do the same.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.made = model, Steps()
        self._layers: list[str] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def run(self, sector: Sector, exchange: Exchange) -> Tensor:
        """Runs the model on a sector."""

        def sent(owned: Tensor) -> Tensor:
            self._step("sends", owned)
            return exchange(owned)

        hooks = []
        for name, module in self.model.named_modules():
            enter = partial(self._enter, name)
            hooks.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            hooks.append(module.register_forward_hook(self._leave))
        try:
            with self:
                made: Tensor = self.model(*inputs_of(sector), sent)
                return made
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, name: str, _: nn.Module, args: Any, kwargs: Any) -> None:
        self._step("reads", (args, kwargs), name)
        self._layers.append(name)

    def _leave(self, _: nn.Module, __: Any, made: Any) -> None:
        self._step("gives", made)
        self._layers.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self._step(_name(func), _changed(func, args, made))
        return made

    def _step(self, what: str, values: Any, layer: str | None = None) -> None:
        within = self._layers[-1] if self._layers else ""
        layer = within if layer is None else layer
        with torch._C.DisableTorchFunction():  # what is computed for notes is no step itself
            tensors = _floating(values)
            if tensors:
                self._counts[layer, what] += 1
                self._note(Step(layer, what, self._counts[layer, what], within), tensors)

    def _note(self, step: Step, tensors: Sequence[Tensor]) -> None:
        self.made[step] = [tensor.detach().clone() for tensor in tensors]


class _Way(_Trace):
    """A sector's way through the model, beside that of the whole graph.

    fault: the first step between layers where rows differ; suspect: the first torch function that
    gives other rows since those between layers were last right, with its line in the user's own
    code and why.
    """

    def __init__(self, model: nn.Module, rows: _Rows, whole: Steps, tolerance: float) -> None:
        super().__init__(model)
        self._rows, self._whole, self._tolerance = rows, whole, tolerance
        # The step that made a tensor, and which of the step's tensors it is.
        self._sources: dict[Any, tuple[Step, int]] = {}
        self._alive: list[Tensor] = []  # or another tensor took its memory, and its place above
        self.fault: Step | None = None
        self.suspect: Step | None = None
        self.line, self.why = "", _UNKNOWN

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.fault or self.suspect:
            return super().__torch_function__(func, types, args, kwargs)
        # Copied before the call, which may change its arguments.
        mended = {of: self._mended(of, (args, kwargs or {})) for of in ("nodes", "edges")}
        made = super().__torch_function__(func, types, args, kwargs)
        if self.suspect:
            self.line = users_line(frame for frame, _ in walk_stack(None))
            rights = [of for of in mended if self._is_right(self.suspect, func, *mended[of][:2])]
            self.why = {"nodes": _HALO, "edges": _EDGES}[rights[0]] if rights else _MIXED
            if self.why == _HALO and mended["nodes"][2]:
                self.why = _COUNTED
        return made

    def _note(self, step: Step, tensors: Sequence[Tensor]) -> None:
        for place, tensor in enumerate(tensors):
            self._sources[_identity(tensor)] = step, place
        self._alive.extend(tensors)
        if self.fault:
            return
        found = self._aligned(step, tensors)
        if not self._agrees(found):
            if step.is_whole:
                self.fault = step
            elif self.suspect is None:
                self.suspect = step
        elif found and step.is_whole:
            self.suspect, self.line, self.why = None, "", _UNKNOWN

    def _aligned(self, step: Step, tensors: Iterable[Tensor]) -> list[_Aligned]:
        """Aligns what a step made here with what it made of the whole graph."""
        pairs = zip(self._whole.get(step, []), tensors, strict=False)
        return [each for pair in pairs if (each := self._rows.align(*pair))]

    def _agrees(self, found: Iterable[_Aligned]) -> bool:
        return all(each.difference <= self._tolerance for each in found)

    def _is_right(self, step: Step, function: Callable[..., Any], args: Any, kwargs: Any) -> bool:
        """Whether a function gives the right rows of other arguments."""
        try:
            with torch.no_grad():
                made = _changed(function, args, function(*args, **kwargs))
        except (RuntimeError, TypeError, ValueError, IndexError):
            return False  # it bears no other arguments than its own
        return self._agrees(self._aligned(step, _floating(made)))

    def _mended(self, of: str, arguments: tuple[Any, Any]) -> tuple[Any, Any, bool]:
        """Copies arguments; those rows `of` halo nodes, or of edges that end there, are the whole
        graph's. The last is whether nothing of these is learnt (it has no gradient).
        """
        counted = torch.is_grad_enabled()

        def mend(value: Any) -> Any:
            nonlocal counted
            if not isinstance(value, Tensor):
                return value
            step, place = self._sources.get(_identity(value), (None, 0))
            whole = self._whole.get(step, []) if step else []
            found = self._rows.align(whole[place], value) if place < len(whole) else None
            if found is None or found.of != of:
                return value.detach().clone()
            mended = found.mended()
            if not torch.equal(mended, found.found):
                counted &= not value.requires_grad
            return mended

        return *tree_map(mend, arguments), counted


def record(model: nn.Module, whole: Sector) -> Steps:
    """Runs `model` on a whole graph: all that it makes on its way, in order."""
    trace = _Trace(replica(model))
    run_sectors([partial(trace.run, whole)], [whole])
    return trace.made


def first_difference(
    model: nn.Module, whole: Sector, parts: Sequence[Sector], tolerance: float, why: str | None
) -> str:
    """Names the first layer whose rows in `parts`, sectors of the graph `whole`, are not those of
    the whole, as some are not, and says why: `why`, or what is found out.
    """
    made = record(model, whole)
    ways = [_Way(replica(model), _Rows(whole, part), made, tolerance) for part in parts]
    run_sectors([partial(way.run, part) for way, part in zip(ways, parts, strict=True)], parts)
    place = {step: i for i, step in enumerate(made)}
    faults = [(place[way.fault], k) for k, way in enumerate(ways) if way.fault]
    if not faults:
        return f"{told('', model)}: {why or _UNKNOWN}"
    way = ways[min(faults)[1]]
    assert way.fault
    layer = told(way.fault.blamed, model.get_submodule(way.fault.blamed))
    function = f", {way.suspect.what.strip('_')}{way.line}" if way.suspect else ""
    return f"{layer}{function}: {why or way.why}"


def users_line(frames: Iterable[FrameType]) -> str:
    """Says which line is the innermost of `frames`, innermost first, in code that is neither
    installed nor this package's: ` in net.py:17`, or nothing.
    """
    for frame in frames:
        path = frame.f_code.co_filename
        name = Path(path).name  # PyG writes code of its layers to files elsewhere
        if not path.startswith((*_INSTALLED, "<")) and not name.startswith("torch_geometric."):
            return f" in {name}:{frame.f_lineno}"
    return ""


def _changed(function: Callable[..., Any], args: Sequence[Any], made: Any) -> Any:
    """Gives what a torch function has made: an assignment to rows gives nothing, and changes its
    first argument.
    """
    return args[0] if _name(function) == "__setitem__" else made


def _name(function: Callable[..., Any]) -> str:
    """Names a torch function; one that was compiled from a script has no name of its own."""
    return str(getattr(function, "__name__", type(function).__name__))


def _floating(values: Any) -> list[Tensor]:
    leaves = tree_leaves(values)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def _identity(tensor: Tensor) -> Any:
    """Tells a tensor from others, but not from itself within a function with its own gradients."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()
