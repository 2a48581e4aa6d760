"""Proves that a model gives the same results and gradients in sectors as in the whole graph.

Small random graphs are run whole and in sectors (sectors.py); difference.py names the first place
that differs, in one line. `check_model` runs before each training: it checks the contract
(models/protocol.py) and, for a user's model, two graphs. `prove`, for `bigtrk check-model`, runs
all graphs, in eval mode as well.

Shapes: N nodes of a sector, the first n_owned of them owned, E edges, D columns of a result.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from bigtrk.graphs.event_graph import Sector, whole_sector
from bigtrk.models.options import Kind
from bigtrk.models.protocol import ContractError, LayeredModel, told
from bigtrk.models.settings import ModelConfig, make_model
from bigtrk.parallel.collectives import check_agreement, together
from bigtrk.proof.difference import Recorded, failure, named, relative
from bigtrk.proof.sectors import (
    KINDS,
    SectorError,
    draw,
    exchanged,
    inputs_of,
    run_sectors,
    shuffled,
    told_sector,
)
from bigtrk.user_code import no_exit

PARTS = (2, 3, 4)
# Few graphs show a difference of eval mode.
EVALUATED = (("directed", 2), ("hub", 3), ("empty sector", 4))
QUICK = (("self loops", 2), ("isolated nodes", 3))  # before a training
# Relative to the largest value. Rounding gives 1e-16 to 1e-13, a wrong row 1e-4 and more; a model
# that computes in float32, whatever the type of x, is rounded at 1e-7 to 1e-5.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
# A gradient is compared with at least this share of the largest one: one that is zero apart from
# rounding (a bias before a softmax) has no scale of its own.
_LEAST_SHARE = 1e-3

_RANDOM = "gives other rows in a second pass over the same graph; draw nothing at random (dropout)"
_ORDER = (
    "gives other rows where nodes and edges come in another order, as they do in sectors; take "
    "the sum or the maximum over a node's edges"
)
_PARTIAL = (
    "has a gradient hook, which would see one sector's gradient and not the sum over all sectors; "
    "remove it (optimizer.gradient_clipping clips the sum)"
)
_DIVISION = "look for a division by a number that may be 0, such as the number of a node's edges"
_COARSE = "whatever the type of x, and its rounding hides other faults; compute in the type of x"
_CUT = (
    "not the same in sectors as in the whole graph, though the model's output is; detach no rows "
    "that the halo exchange returns, and use no torch.utils.checkpoint across an exchange"
)


class Trial(NamedTuple):
    """One comparison: the largest relative differences of rows and gradients from the whole's."""

    graph: str
    sectors: int
    rows: float
    gradients: float


@dataclass(frozen=True)
class Proof:
    """The proof that a model is exact, or the fault that was found.

    exchanges: the widths of its exchanges in a forward pass; None if no pass ended without error.
    first_difference: the first layer that makes a difference, and why; None if the model is exact.
    """

    model: str
    trials: tuple[Trial, ...] = ()
    exchanges: tuple[int, ...] | None = None
    first_difference: str | None = None

    @property
    def exact(self) -> bool:
        return self.first_difference is None

    @property
    def worst(self) -> float | None:
        """The largest relative difference in a trial; None if infinite or without a trial."""
        found = max((max(each.rows, each.gradients) for each in self.trials), default=torch.inf)
        return found if found < torch.inf else None

    def summary(self) -> dict[str, Any]:
        """Returns a short form of the proof in JSON types; exchanges: their number."""
        return {
            "model": self.model,
            "exact": self.exact,
            "worst": self.worst,
            "exchanges": None if self.exchanges is None else len(self.exchanges),
            "first_difference": self.first_difference,
        }


def check_on_all_ranks(
    model: nn.Module, n_node_features: int, n_edge_features: int, config: ModelConfig
) -> None:
    """Checks this rank's `model`, made by `config`, and that all ranks make the same exchanges.
    Collective. Raises InputError on all ranks if a model breaks its contract (models/protocol.py).
    """
    sizes = n_node_features, n_edge_features
    widths = together(lambda: check_model(model, *sizes, config.kind, config.is_users))
    told = f"{len(widths)} of widths {widths}"
    check_agreement({"number of halo exchanges in its model": told})


def check_model(
    model: nn.Module,
    n_node_features: int,
    n_edge_features: int,
    kind: Kind = "edge",
    users_own: bool = True,
) -> list[int]:
    """Checks the contract of `model` on a small graph; if it is `users_own`, also that sectors give
    the same rows and gradients as the whole graph. Returns the widths of its exchanges. Weights and
    torch's random numbers stay unchanged. Raises ContractError, which names the fault.
    """
    sizes = n_node_features, n_edge_features
    widths = _check_contract(model, kind, *sizes)
    if users_own:
        with _in_float64():
            found = _first_fault(model, sizes, kind, QUICK, [])
        if found and not found.endswith(_COARSE):
            raise ContractError(found)
    return widths


def prove_configured(config: ModelConfig, n_node_features: int, n_edge_features: int) -> Proof:
    """Builds the model of `config`, with its head for pT if it has one, and proves it, in float64
    even if it computes in bfloat16. The same settings give the same weights and proof. Raises
    InputError if the model cannot be built.
    """
    if config.precision == "bf16":
        config = config.model_copy(update={"precision": "fp32"})
    sizes = n_node_features, n_edge_features
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = make_model(config, *sizes, config.has_pt_head)
    except ContractError as error:
        return Proof(config.name, first_difference=str(error))
    return prove(model, *sizes, config.kind, config.name)


def prove(
    model: nn.Module,
    n_node_features: int,
    n_edge_features: int,
    kind: Kind = "edge",
    name: str | None = None,
) -> Proof:
    """Runs a float64 copy of `model` on random graphs, whole and in 2 to 4 sectors, forward and
    backward; on some of them also forward in eval mode. Returns the proof. Torch's random numbers
    and the model stay unchanged. name: the model's in the proof; by default its class's.
    """
    name, sizes = name or type(model).__name__, (n_node_features, n_edge_features)
    exchanges, broken = None, None
    try:
        exchanges = tuple(check_model(model, *sizes, kind, users_own=False))
    except ContractError as error:
        broken = str(error)
        if any(map(is_lazy, model.parameters())):
            return Proof(name, first_difference=broken)
    # If a broken promise changes a result, that layer is named instead.
    trials: list[Trial] = []
    kinds = [(graph, parts) for graph in KINDS for parts in PARTS]
    with _in_float64():
        found = _first_fault(model, sizes, kind, kinds, trials)
        if not found:
            with torch.no_grad():  # as a trained model is evaluated
                found = _first_fault(model, sizes, kind, EVALUATED, trials, ", eval mode")
            hint = "(in eval mode alone, in which runs are evaluated: let both compute the same)"
            found = f"{found} {hint}" if found else broken
    return Proof(name, tuple(trials), exchanges, found)


def _first_fault(
    model: nn.Module,
    sizes: tuple[int, int],
    kind: Kind,
    kinds: Sequence[tuple[str, int]],
    trials: list[Trial],
    mode: str = "",
) -> str | None:
    """Returns the first fault, or None. Tests first a whole graph (randomness, dependence on
    order), then each (graph, number of sectors) of `kinds`. Appends each comparison to `trials`.
    """
    whole = whole_sector(draw(KINDS[0], 2, *sizes)[0])
    cases: list[tuple[str, Sector, list[Sector], str | None]] = [
        ("the same graph again", whole, [whole], _RANDOM),
        ("the same graph in another order", whole, [shuffled(whole)], _ORDER),
    ]
    graphs = [(name, *draw(name, n_parts, *sizes)) for name, n_parts in kinds]
    cases += [(name, whole_sector(graph), sectors, None) for name, graph, sectors in graphs]
    for name, whole, parts, why in cases:
        moved = _moved(model).train(not mode)
        try:
            rows, gradients = _outcome(moved, parts, kind)
            expected, wanted = _outcome(moved, [whole], kind)
            largest = max((float(each.abs().max()) for each in wanted.values()), default=0.0)
            least = max(_LEAST_SHARE * largest, 1e-300)
            of_each = {key: relative(gradients[key], value, least) for key, value in wanted.items()}
            worst = max(of_each.values(), default=0.0)
            trial = Trial(name + mode, len(parts), relative(rows, expected), worst)
            trials.append(trial)
            found = _name_difference(moved, whole, parts, trial, of_each, why)
        except SectorError as error:
            found = failure(moved, error)
        if found:
            return found
    return None


def _name_difference(
    model: nn.Module,
    whole: Sector,
    parts: Sequence[Sector],
    trial: Trial,
    of_each: dict[str, float],
    why: str | None,
) -> str | None:
    """Returns the first difference above the rounding of the model's own types, or None."""
    if max(trial.rows, trial.gradients) <= min(TOLERANCE.values()):
        return None
    seen = Recorded(_replica(model), whole)
    run_sectors([seen.run], [whole])
    # The coarsest floating type that the model computes in, and the first step with it.
    types = [(step, made.dtype) for step, call in seen.calls.items() for made in call.made]
    step, dtype = max(types, key=lambda pair: torch.finfo(pair[1]).eps)
    if dtype not in TOLERANCE:
        layer = told(step.layer, model.get_submodule(step.layer))
        return f"{layer}, {step.what.strip('_')}: computes in {dtype} {_COARSE}"
    tolerance = TOLERANCE[dtype]
    if trial.rows > tolerance:
        passes = [Recorded(_replica(model), part) for part in parts]
        run_sectors([each.run for each in passes], parts)
        return named(seen, passes, tolerance, why)
    # The backward pass starts at the result; the last parameters are usually nearest to it.
    wrong = [name for name, value in of_each.items() if value > tolerance]
    if not wrong:
        return None
    why = _CUT if trial.gradients < torch.inf else f"NaN or infinite in a sector; {_DIVISION}"
    return f"{wrong[-1]}: its gradient is {why}"


def _outcome(
    model: nn.Module, sectors: Sequence[Sector], kind: Kind
) -> tuple[Tensor, dict[str, Tensor]]:
    """Runs `model` on the sectors of one graph, forward and backward. Returns its rows in the
    graph's order, and by parameter the gradients of sum(rows * fixed random weights), or zeros.
    """
    made, _ = _results(model, sectors, kind)
    own: list[tuple[Tensor, Any]] = [
        (one.edge_id, one.owns_edge) if kind == "edge" else (one.node_id, slice(one.n_owned))
        for one in sectors
    ]
    order = torch.cat([ids[kept] for ids, kept in own]).argsort()
    rows = torch.cat([rows[kept] for rows, (_, kept) in zip(made, own, strict=True)])[order]
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    found = _backward(trained, (rows * weights).sum())
    zeros = {name: torch.zeros_like(value) for name, value in trained.items()}
    return rows.detach(), zeros | {name: x for name, x in found.items() if x is not None}


def _results(
    model: nn.Module, sectors: Sequence[Sector], kind: Kind, alone: bool = False
) -> tuple[list[Tensor], list[int]]:
    """Runs `model` by `run_sectors`; SectorError also if a result does not fit its `kind`."""
    passes = [partial(_replica(model), *inputs_of(sector, model)) for sector in sectors]
    made, widths = run_sectors(passes, sectors, alone)
    for rows, sector in zip(made, sectors, strict=True):
        which = told_sector(sector)
        if not isinstance(rows, Tensor):
            raise SectorError(f"returns a {type(rows).__name__} for {which}; return a tensor")
        shape = list(rows.shape)
        edges, nodes = [sector.n_edges], [sector.n_nodes, *shape[1:2]]
        if shape not in ((edges, [*edges, 2]) if kind == "edge" else (nodes,)) or not shape[-1:]:
            wanted = "[E] or [E, 2]" if kind == "edge" else "[N, D]"
            raise SectorError(f"returns a tensor of shape {shape} for {which}; return {wanted}")
        if rows.dtype not in TOLERANCE:
            raise SectorError(f"returns {rows.dtype} for {which}; return float32 or float64")
    return made, widths


def _backward(trained: dict[str, nn.Parameter], total: Tensor) -> dict[str, Tensor | None]:
    """Returns the gradient of `total` for each parameter; None if it has none."""
    if not total.requires_grad:
        return dict.fromkeys(trained)
    try:
        with no_exit():
            found = torch.autograd.grad(
                total, [*trained.values()], retain_graph=True, allow_unused=True
            )
    except SectorError:
        raise
    except Exception as error:
        raise SectorError(
            "fails in its backward pass; use no torch.utils.checkpoint around an exchange (in a "
            "network of PyG: around a layer, as bigtrk exchanges after each)"
        ) from error
    return dict(zip(trained, found, strict=True))


def _replica(model: nn.Module) -> nn.Module:
    """Copies a model but shares its weights, so that each sector keeps its own state of a pass."""
    return deepcopy(model, {id(weight): weight for weight in model.parameters()})


def _moved(model: nn.Module) -> nn.Module:
    """Copies a model to float64, and moves its weights a little: zero weights would hide faults."""
    made = deepcopy(model).cpu().double()
    with torch.no_grad():
        for value in made.parameters():
            width = value.shape[-1] if value.dim() else 1
            value.add_(torch.randn_like(value), alpha=0.1 / max(width, 1) ** 0.5)
    return made


@contextmanager
def _in_float64() -> Iterator[None]:
    """Sets torch's default type to float64 and its random seed to 0 while the block runs."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_default_dtype(before)


# The contract: a model's state, and passes on small sectors in its own type and on its device.


def _check_contract(model: nn.Module, kind: Kind, *sizes: int) -> list[int]:
    """Checks `model` on three sectors (one empty) as ranks would run it; returns the widths."""
    wrong = _wrong_state(model)
    if wrong:
        raise ContractError(
            f"model {type(model).__name__}: {wrong} (see bigtrk/models/protocol.py)"
        )
    trained = dict(model.named_parameters())
    parts, weight = draw("empty sector", 3, *sizes)[1], next(model.parameters())
    own = [weight.device] if weight.is_cuda else []
    try:
        with torch.random.fork_rng(devices=own), torch.enable_grad():
            made, widths = _results(model, parts, kind, alone=True)
            for part, rows in zip(parts, made, strict=True):
                if not rows.isfinite().all():
                    which = told_sector(part)
                    raise SectorError(f"returns NaN or infinity for {which}; {_DIVISION}")
                for name, gradient in _backward(trained, rows.sum()).items():
                    _check_gradient(name, gradient, part)
            if isinstance(model, LayeredModel):
                _check_several(model, parts, kind)
    except SectorError as error:
        raise ContractError(failure(model, error)) from error
    return widths


def _check_gradient(name: str, gradient: Tensor | None, part: Sector) -> None:
    which, gives = told_sector(part), f"gives its parameter '{name}'"
    if gradient is None:
        raise SectorError(f"{gives} no gradient for {which}; use it in each pass, or remove it")
    if part.n_nodes == 0 and (gradient != 0).any():  # NaN is not 0 either
        raise SectorError(
            f"{gives} a gradient other than 0 for a sector without nodes; take no means over rows"
        )
    if not gradient.isfinite().all():
        raise SectorError(f"{gives} a gradient of NaN or infinity for {which}; {_DIVISION}")


@torch.no_grad()
def _check_several(model: LayeredModel[Any], parts: Sequence[Sector], kind: Kind) -> None:
    """Raises SectorError unless several sectors at once give the results of each alone."""
    alone, _ = _results(model, parts, kind)
    try:
        with no_exit():
            made = model(
                [inputs_of(part, model) for part in parts], partial(exchanged, sectors=parts)
            )
            pairs = zip(made, alone, strict=True)
            same = all(torch.allclose(*pair, rtol=1e-4, atol=1e-4) for pair in pairs)
    except Exception as error:
        said = "fails for a list of several sectors; let each layer take and return lists"
        raise SectorError(said) from error
    if not same:
        raise SectorError(
            "gives a sector other results in a list of sectors than alone; compute each sector "
            "from its own rows"
        )


def _wrong_state(model: nn.Module) -> str | None:
    """Returns the parameter, buffer or hook that breaks the contract, and why; None if none."""
    parameters = dict(model.named_parameters())
    if not parameters:
        return "has no parameters to train; make its layers in __init__"
    for name, parameter in parameters.items():
        wrong = ""
        if isinstance(parameter, UninitializedParameter):
            wrong = "has no size yet; give the layer its number of inputs"
        elif parameter.dtype != torch.float32:
            wrong = f"is {parameter.dtype}; keep weights in float32, and convert in forward"
        elif parameter.dim() == 0:
            wrong = "has no dimension, so FSDP could not divide it; give it the shape [1]"
        elif not parameter.requires_grad:
            wrong = "has requires_grad=False; make it a buffer (register_buffer, persistent=False)"
        elif parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            wrong = _PARTIAL
        if wrong:
            return f"its parameter '{name}' {wrong}"
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            return f"its layer {told(path, module)} {_PARTIAL}"
    # A parameter with two names is twice in the state, but once among the parameters.
    every = dict(model.named_parameters(remove_duplicate=False))
    for name in model.state_dict().keys() - parameters.keys():
        if name in every:
            other = next(key for key, kept in parameters.items() if kept is every[name])
            return f"'{name}' is the same tensor as '{other}'; give it a tensor of its own"
        return (
            f"has a buffer '{name}', which checkpoints do not keep; compute it in __init__, so "
            f"that they need not, and register it by register_buffer(..., persistent=False)"
        )
    return None
