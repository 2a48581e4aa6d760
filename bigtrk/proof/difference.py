"""Names, in one line, the first place where the sectors' rows are not those of the whole graph.

A pass over the whole graph is recorded step by step: what each layer gives, what goes to the
exchange, and what each torch function in between reads and makes. The passes over the sectors are
compared with it as they run. The first function that makes other rows is called again with the
whole graph's rows in the place of those that the sector does not know: which of these mend its
result says what it read.
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
from bigtrk.models.protocol import Exchange, SectorInputs, failing_layer, told

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
_LEAST = 1e-6  # rows on the way are compared with at least this: some are zero but for rounding
# Code in these folders is not the user's.
_INSTALLED = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]),
)
Kind = Literal["nodes", "edges", "graph"]


class SectorError(Exception):
    """A sector cannot go on with the others: the message says which and why; its cause is the
    error of the model, if it raised one.
    """


def failure(model: nn.Module, error: SectorError) -> str:
    """Names the layer and the user's line that failed, and why."""
    cause = error.__cause__
    if not isinstance(cause, Exception):
        return f"{told('', model)}: {error}"
    frames = [frame for frame, _ in walk_tb(cause.__traceback__)]
    layer = failing_layer(cause) or told("", model)
    line = _users_line(reversed(frames))
    return f"{layer}{line}: {error} ({type(cause).__name__}: {reason(cause)})"


def relative(found: Tensor, expected: Tensor, least: float = 1e-300) -> float:
    """Measures the largest difference, relative to the largest value expected, or to `least`."""
    if found.numel() == 0:
        return 0.0
    same = (found == expected) | (found.isnan() & expected.isnan())
    apart = torch.where(same, 0.0, (found - expected).abs()).nan_to_num(nan=torch.inf)
    scale = expected[expected.isfinite()].abs().max() if expected.isfinite().any() else apart.max()
    return float(apart.max() / scale.clamp_min(least))


def inputs_of(sector: Sector) -> SectorInputs:
    """Gives a sector as models read it, in tensors that the model may change."""
    x, edge_features = sector.node_features.clone(), sector.edge_features.clone()
    return SectorInputs(x, edge_features, sector.edge_index.clone(), sector.n_owned)


class Step(NamedTuple):
    """The `n`-th time that `layer` gives rows, sends them to the exchange, or calls a torch
    function of the name `what`.
    """

    layer: str
    what: str
    n: int

    @property
    def is_whole(self) -> bool:
        """Whether its rows are those between layers."""
        return self.what in ("gives", "sends")


class Recorded(TorchFunctionMode):
    """A forward pass of `model`.

    made: the floating tensors of each step, in order; given: the arguments of its function.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.made: dict[Step, list[Tensor]] = {}
        self.given: dict[Step, list[Any]] = {}
        self._layers = [""]
        self._counts: Counter[tuple[str, str]] = Counter()

    def run(self, sector: Sector, exchange: Exchange) -> Tensor:
        def sent(owned: Tensor) -> Tensor:
            self._step("sends", owned)
            return exchange(owned)

        hooks = []
        for name, module in self.model.named_modules():
            hooks.append(module.register_forward_pre_hook(partial(self._enter, name)))
            hooks.append(module.register_forward_hook(self._leave))
        try:
            with self:
                made: Tensor = self.model(*inputs_of(sector), sent)
                return made
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, name: str, _: nn.Module, __: Any) -> None:
        self._layers.append(name)

    def _leave(self, _: nn.Module, __: Any, made: Any) -> None:
        self._step("gives", made)
        self._layers.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves(tree_map(_copy, (args, kwargs or {})))  # the call may change them
        made = func(*args, **(kwargs or {}))
        self._step(_name(func), _changed(func, args, made), given)
        return made

    def _step(self, what: str, values: Any, given: Sequence[Any] = ()) -> None:
        layer = self._layers[-1]
        with torch._C.DisableTorchFunction():  # what is computed for notes is no step itself
            tensors = [leaf for leaf in tree_leaves(values) if _is_floating(leaf)]
            if tensors:
                self._counts[layer, what] += 1
                self._note(Step(layer, what, self._counts[layer, what]), tensors, given)

    def _note(self, step: Step, tensors: list[Tensor], given: Sequence[Any]) -> None:
        self.made[step] = [_copy(tensor) for tensor in tensors]
        self.given[step] = list(given)


class _Aligned(NamedTuple):
    """A sector's tensor `found`, and `expected`, the whole graph's in the same rows, which lie
    along `axis`; `sure`: those that a sector knows, of its owned nodes, or of edges that end there.
    """

    found: Tensor
    expected: Tensor
    kind: Kind
    axis: int
    sure: Tensor

    def agrees(self, tolerance: float) -> bool:
        """Whether the rows that the sector knows are the whole graph's."""
        rows = self.sure.nonzero()[:, 0]
        found, expected = (one.index_select(self.axis, rows) for one in self[:2])
        return relative(found, expected, _LEAST) <= tolerance

    def mended(self) -> Tensor:
        """Puts the whole graph's rows in the place of those that the sector does not know."""
        shape = [-1 if axis == self.axis else 1 for axis in range(self.found.dim())]
        return torch.where(self.sure.view(shape), self.found, self.expected)


class Compared(Recorded):
    """A pass over `part`, a sector, beside the one recorded over the `whole` graph.

    fault: the first step between layers where rows differ; suspect: the first function that makes
    other rows since those between layers were last right, with its line in the user's code and why.
    """

    def __init__(
        self, model: nn.Module, sectors: tuple[Sector, Sector], whole: Recorded, tolerance: float
    ) -> None:
        super().__init__(model)
        self._whole, self._tolerance = whole, tolerance
        graph, part = sectors
        owned = torch.arange(part.n_nodes) < part.n_owned
        nodes, edges = part.node_id, graph.edge_id.argsort()[part.edge_id]
        # (rows of the whole's tensor, of the part's): the whole's of each of these, and if known.
        self._rows: dict[tuple[int, int], tuple[Kind, Tensor, Tensor]] = {
            (graph.n_nodes, part.n_owned): ("nodes", nodes[: part.n_owned], owned[: part.n_owned]),
            (graph.n_nodes, part.n_nodes): ("nodes", nodes, owned),
            (graph.n_edges, part.n_edges): ("edges", edges, part.owns_edge),
        }
        self.fault: Step | None = None
        self.suspect: Step | None = None
        self.line, self.why = "", _UNKNOWN

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.fault or self.suspect:
            return super().__torch_function__(func, types, args, kwargs)
        given = tree_map(_copy, (args, kwargs or {}))
        made = super().__torch_function__(func, types, args, kwargs)
        if self.suspect:
            self.line = _users_line(frame for frame, _ in walk_stack(None))
            self.why = self._reason(self.suspect, func, given)
        return made

    def _note(self, step: Step, tensors: list[Tensor], given: Sequence[Any]) -> None:  # noqa: ARG002
        if self.fault:
            return
        found = self._aligned(step, tensors)
        if not all(each.agrees(self._tolerance) for each in found):
            if step.is_whole:
                self.fault = step
            elif self.suspect is None:
                self.suspect = step
        elif found and step.is_whole:
            self.suspect, self.line, self.why = None, "", _UNKNOWN

    def _aligned(self, step: Step, tensors: Iterable[Tensor]) -> list[_Aligned]:
        pairs = zip(self._whole.made.get(step, []), tensors, strict=False)
        return [each for pair in pairs if (each := self._align(*pair))]

    def _align(self, whole: Tensor, part: Tensor) -> _Aligned | None:
        """Aligns two tensors; None where neither nodes nor edges can be told in them. Those without
        rows are compared as they are.
        """
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

    def _reason(self, step: Step, function: Any, given: Any) -> str:
        """Says which rows, if they were the whole graph's, would make `function` right."""
        for kind, why in (("nodes", _HALO), ("edges", _EDGES)):
            whole, counted = iter(self._whole.given.get(step, [])), torch.is_grad_enabled()

            def mend(value: Any, kind: str = kind, whole: Any = whole) -> Any:
                nonlocal counted
                other = next(whole, None)
                if not (_is_floating(value) and _is_floating(other)):
                    return value
                found = self._align(other, value)
                if found is None or found.kind != kind:
                    return value.detach().clone()
                mended = found.mended()
                if not torch.equal(mended, found.found):
                    counted &= not value.requires_grad
                return mended

            args, kwargs = tree_map(mend, given)
            try:
                with torch.no_grad():
                    made = _changed(function, args, function(*args, **kwargs))
            except (RuntimeError, TypeError, ValueError, IndexError):
                continue  # it bears no other arguments than its own
            found = self._aligned(step, filter(_is_floating, tree_leaves(made)))
            if all(each.agrees(self._tolerance) for each in found):
                return _COUNTED if kind == "nodes" and counted else why
        return _MIXED


def named(model: nn.Module, whole: Recorded, passes: Sequence[Compared], why: str | None) -> str:
    """Names the first layer whose rows in one of `passes` are not those of the whole graph, and
    says why: `why`, or what is found out.
    """
    place = {step: i for i, step in enumerate(whole.made)}
    faults = [(place[each.fault], k) for k, each in enumerate(passes) if each.fault]
    if not faults:
        return f"{told('', model)}: {why or _UNKNOWN}"
    first = passes[min(faults)[1]]
    assert first.fault
    layer = (first.suspect or first.fault).layer
    function = f", {first.suspect.what.strip('_')}{first.line}" if first.suspect else ""
    return f"{told(layer, model.get_submodule(layer))}{function}: {why or first.why}"


def _users_line(frames: Iterable[FrameType]) -> str:
    """Says which line is the innermost of `frames`, innermost first, in code that is neither
    installed nor this package's: ` in net.py:17`, or nothing.
    """
    for frame in frames:
        path = frame.f_code.co_filename
        name = Path(path).name  # PyG writes code of its layers to files elsewhere
        if not path.startswith((*_INSTALLED, "<")) and not name.startswith("torch_geometric."):
            return f" in {name}:{frame.f_lineno}"
    return ""


def _changed(function: Any, args: Sequence[Any], made: Any) -> Any:
    """Gives what a torch function has made: an assignment to rows changes its first argument."""
    return args[0] if _name(function) == "__setitem__" else made


def _name(function: Any) -> str:
    """Names a torch function; one that was compiled from a script has no name of its own."""
    return str(getattr(function, "__name__", type(function).__name__))


def _is_floating(value: Any) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.is_floating_point()


def _copy(value: Any) -> Any:
    """Copies a floating tensor that a call may change, keeping whether it has a gradient."""
    if not _is_floating(value):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)
