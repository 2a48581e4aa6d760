"""Names, in one line, the first place where the sectors' rows differ from the whole graph's.

The passes over the whole graph and over the sectors are recorded step by step: the result of each
layer, the rows sent to the exchange, and the inputs and results of each torch function in between.
The first function with wrong rows is called again, with the whole graph's rows in the place of rows
that the sector does not know: the rows that correct its result are those that it wrongly read.
"""

import sysconfig
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Any, Literal, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from bigtrk.errors import reason
from bigtrk.graphs.event_graph import Sector
from bigtrk.models.protocol import Exchange, told
from bigtrk.proof.sectors import SectorError, inputs_of

_HALO = (
    "reads rows of halo nodes that differ from those of their owners, since a sector lacks some of "
    "a halo node's edges; call the exchange before an edge reads such rows"
)
_COUNTED = (
    "reads the number of a halo node's edges (its degree), but a sector lacks some of them; count "
    "them in the whole graph, and read the number as a feature"
)
_EDGES = (
    "reads rows of edges that end at halo nodes, but a sector lacks some edges of these nodes; sum "
    "values that are normalised over a node's incoming edges at this node, not at their sources"
)
_MIXED = (
    "mixes all rows of its sector (normalises or sums over them, or reads their number) or passes "
    "messages twice; let a node's row depend only on its incoming edges and their source nodes, "
    "and pass messages once"
)
_UNKNOWN = "gives other rows in a sector than in the whole graph"
_LEAST = 1e-6  # smallest scale to compare intermediate rows with: some are zero up to rounding
# Code in these folders is not user code.
_INSTALLED = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]),
)
Kind = Literal["nodes", "edges", "graph"]


def failure(model: nn.Module, error: SectorError) -> str:
    """Returns the layer and the user's line that failed, and the reason."""
    cause = error.__cause__
    if not isinstance(cause, Exception):
        return f"{told('', model)}: {error}"
    frames = [frame for frame, _ in walk_tb(cause.__traceback__)]
    at_work = [frame.f_locals.get("self") for frame in frames]
    modules = [one for one in at_work if isinstance(one, nn.Module)] or [model]
    paths = {id(module): path for path, module in modules[0].named_modules()}
    innermost = [module for module in modules if id(module) in paths][-1]
    layer = told(paths[id(innermost)], innermost)
    line = _users_line(reversed(frames))
    return f"{layer}{line}: {error} ({type(cause).__name__}: {reason(cause)})"


def relative(found: Tensor, expected: Tensor, least: float = 1e-300) -> float:
    """Returns the largest difference over the largest expected value (or `least`, if larger)."""
    if found.numel() == 0:
        return 0.0
    same = (found == expected) | (found.isnan() & expected.isnan())
    apart = torch.where(same, 0.0, (found - expected).abs()).nan_to_num(nan=torch.inf)
    scale = expected[expected.isfinite()].abs().max() if expected.isfinite().any() else apart.max()
    return float(apart.max() / scale.clamp_min(least))


class Step(NamedTuple):
    """The `n`-th time that `layer` "gives" or "sends" rows, or calls the function `what`."""

    layer: str
    what: str
    n: int

    @property
    def is_whole(self) -> bool:
        """Whether its rows are those passed between layers."""
        return self.what in ("gives", "sends")


class Call(NamedTuple):
    """The floating tensors that a step made. For a torch function also the function, its arguments
    before the call, whether gradients were on, and the line of the user's code that called it.
    """

    made: list[Tensor]
    function: Any = None
    given: Any = ((), {})
    has_gradients: bool = True
    line: str = ""


class Recorded(TorchFunctionMode):
    """Records a forward pass of `model` over `sector`. calls: step -> call, in order."""

    def __init__(self, model: nn.Module, sector: Sector) -> None:
        super().__init__()
        self.model, self.sector = model, sector
        self.calls: dict[Step, Call] = {}
        self._layers = [""]
        self._counts: Counter[tuple[str, str]] = Counter()

    def run(self, exchange: Exchange) -> Tensor:
        def sent(owned: Tensor) -> Tensor:
            self._note("sends", owned)
            return exchange(owned)

        hooks = []
        for name, module in self.model.named_modules():
            hooks.append(module.register_forward_pre_hook(partial(self._enter, name)))
            hooks.append(module.register_forward_hook(self._leave))
        try:
            with self:
                made: Tensor = self.model(*inputs_of(self.sector, self.model), sent)
                return made
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, name: str, _: nn.Module, __: Any) -> None:
        self._layers.append(name)

    def _leave(self, _: nn.Module, __: Any, made: Any) -> None:
        self._note("gives", made)
        self._layers.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_map(_copy, (args, kwargs or {}))  # the call may change them
        made = func(*args, **(kwargs or {}))
        line = _users_line(frame for frame, _ in walk_stack(None))
        self._note(
            _name(func), _changed(func, args, made), func, given, torch.is_grad_enabled(), line
        )
        return made

    def _note(self, what: str, values: Any, *how: Any) -> None:
        layer = self._layers[-1]
        with torch._C.DisableTorchFunction():  # operations for notes are not steps
            tensors = [_copy(leaf) for leaf in tree_leaves(values) if _is_floating(leaf)]
        if tensors:
            self._counts[layer, what] += 1
            self.calls[Step(layer, what, self._counts[layer, what])] = Call(tensors, *how)


class _Aligned(NamedTuple):
    """A sector's tensor `found`, and `expected`: the same rows, along `axis`, of the whole graph's.
    sure: true for rows that a sector knows, of owned nodes and of edges that end there.
    """

    found: Tensor
    expected: Tensor
    kind: Kind
    axis: int
    sure: Tensor

    def agrees(self, tolerance: float) -> bool:
        """Whether the rows that the sector knows equal the whole graph's."""
        rows = self.sure.nonzero()[:, 0]
        found, expected = (one.index_select(self.axis, rows) for one in self[:2])
        return relative(found, expected, _LEAST) <= tolerance

    def mended(self) -> Tensor:
        """Returns `found` with the whole graph's rows where the sector does not know them."""
        shape = [-1 if axis == self.axis else 1 for axis in range(self.found.dim())]
        return torch.where(self.sure.view(shape), self.found, self.expected)


class _Comparison:
    """Compares a pass over a sector with the pass over the whole graph."""

    def __init__(self, whole: Recorded, part: Recorded, tolerance: float) -> None:
        self._whole, self.part, self._tolerance = whole, part, tolerance
        graph, sector = whole.sector, part.sector
        owned = torch.arange(sector.n_nodes) < sector.n_owned
        n, nodes, edges = sector.n_owned, sector.node_id, graph.edge_id.argsort()[sector.edge_id]
        # (rows of the whole's tensor, of the part's) -> kind, places in the whole, and if known.
        self._rows: dict[tuple[int, int], tuple[Kind, Tensor, Tensor]] = {
            (graph.n_nodes, n): ("nodes", nodes[:n], owned[:n]),
            (graph.n_nodes, sector.n_nodes): ("nodes", nodes, owned),
            (graph.n_edges, sector.n_edges): ("edges", edges, sector.owns_edge),
        }

    def first_fault(self) -> tuple[Step | None, Step | None]:
        """Returns the first step between layers whose rows differ, and the step that caused it: the
        first with other rows since the rows between layers last agreed. None, None without a fault.
        """
        suspect = None
        for step, call in self.part.calls.items():
            found = self._aligned(step, call.made)
            if not all(each.agrees(self._tolerance) for each in found):
                if step.is_whole:
                    return step, suspect or step
                suspect = suspect or step
            elif found and step.is_whole:
                suspect = None
        return None, None

    def reason(self, step: Step) -> str:
        """Returns what a function wrongly read: rows that, if the whole graph's, correct it."""
        call = self.part.calls[step]
        for kind, why in (("nodes", _HALO), ("edges", _EDGES)):
            whole = iter(tree_leaves(self._whole.calls[step].given))
            counted = call.has_gradients

            def mend(value: Any, kind: str = kind, whole: Any = whole) -> Any:
                nonlocal counted
                other = next(whole, None)  # the whole graph's call may have other arguments
                if not (_is_floating(other) and _is_floating(value)):
                    return _copy(value)
                found = self._align(other, value)
                if found is None or found.kind != kind:
                    return _copy(value)
                mended = found.mended()
                if not torch.equal(mended, found.found):
                    counted &= not value.requires_grad
                return mended

            args, kwargs = tree_map(mend, call.given)
            try:
                with torch.no_grad():
                    made = _changed(call.function, args, call.function(*args, **kwargs))
            except (RuntimeError, TypeError, ValueError, IndexError):
                continue  # the function fails with other arguments
            found = self._aligned(step, filter(_is_floating, tree_leaves(made)))
            if all(each.agrees(self._tolerance) for each in found):
                return _COUNTED if kind == "nodes" and counted else why
        return _MIXED

    def _aligned(self, step: Step, tensors: Iterable[Tensor]) -> list[_Aligned]:
        whole = self._whole.calls.get(step, Call([])).made
        pairs = zip(whole, tensors, strict=False)
        return [each for pair in pairs if (each := self._align(*pair))]

    def _align(self, whole: Tensor, part: Tensor) -> _Aligned | None:
        """Aligns rows of nodes or edges, or whole tensors of one shape; None if neither fits."""
        whole, part = whole.detach(), part.detach()
        if whole.dim() != part.dim():
            return None
        for axis, pair in enumerate(zip(whole.shape, part.shape, strict=True)):
            if pair in self._rows:
                kind, rows, sure = self._rows[pair]
                expected = whole.index_select(axis, rows)
                same = expected.shape == part.shape
                return _Aligned(part, expected, kind, axis, sure) if same else None
        if whole.shape != part.shape:
            return None
        found = part.reshape(-1)
        return _Aligned(found, whole.reshape(-1), "graph", 0, torch.ones_like(found).bool())


def named(whole: Recorded, parts: Sequence[Recorded], tolerance: float, why: str | None) -> str:
    """Returns the first layer whose rows in a part differ, and the reason: `why`, or one found."""
    order, faults = list(whole.calls), []
    for part in parts:
        compared = _Comparison(whole, part, tolerance)
        fault, culprit = compared.first_fault()
        if fault and culprit:
            faults.append((order.index(fault), culprit, compared))
    if not faults:
        return f"{told('', whole.model)}: {why or _UNKNOWN}"
    _, step, compared = min(faults, key=lambda each: each[0])
    layer = told(step.layer, whole.model.get_submodule(step.layer))
    if step.is_whole:
        return f"{layer}: {why or _UNKNOWN}"
    line = compared.part.calls[step].line
    return f"{layer}, {step.what.strip('_')}{line}: {why or compared.reason(step)}"


def _users_line(frames: Iterable[FrameType]) -> str:
    """Returns the innermost line of user code, " in net.py:17"; frames come innermost first."""
    for frame in frames:
        path = frame.f_code.co_filename
        name = Path(path).name  # PyG writes code of its layers to files elsewhere
        if not path.startswith((*_INSTALLED, "<")) and not name.startswith("torch_geometric."):
            return f" in {name}:{frame.f_lineno}"
    return ""


def _changed(function: Any, args: Sequence[Any], made: Any) -> Any:
    """Returns a torch function's result; for an assignment to rows, its changed first argument."""
    return args[0] if _name(function) == "__setitem__" else made


def _name(function: Any) -> str:
    """Returns the name of a torch function; a compiled script has only its type."""
    return str(getattr(function, "__name__", type(function).__name__))


def _is_floating(value: Any) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.is_floating_point()


def _copy(value: Any) -> Any:
    """Copies a floating tensor that a call may change, with its requires_grad."""
    if not _is_floating(value):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)
