"""Proves that a model gives in sectors what it gives in the whole graph: results and gradients.

sectors.py draws graphs and runs a model on the sectors of one process; contract.py holds a model to
its contract (models/protocol.py); difference.py finds the first layer that differs, and why.

`check_model` runs before each training: the contract, and of a model of the user's own a few small
graphs. `prove`, for `bigtrk check-model`, runs all of them, in eval mode as well.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from bigtrk.models.options import Kind
from bigtrk.models.protocol import ContractError, told
from bigtrk.models.settings import ModelConfig, make_model
from bigtrk.parallel.collectives import check_agreement, together
from bigtrk.proof import sectors
from bigtrk.proof.contract import check_contract, failure, own_random_numbers
from bigtrk.proof.difference import first_difference, record
from bigtrk.proof.sectors import Case, Difference, SectorError, cases, compare, outcome

# Of the largest value. Rounding gives 1e-16 to 1e-13, a wrong row 1e-4 and more; what a model
# computes in float32 whatever it is given is rounded at 1e-7 to 1e-5.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_COARSE = (
    "whatever it is given, whose rounding hides what is looked for; let it compute in the type of x"
)
_EVAL = "in eval mode alone, in which runs are evaluated: let both modes compute the same"


class Trial(NamedTuple):
    """A graph in sectors beside the whole of it: the largest relative differences of its results
    and of its gradients, infinite where one is not finite.
    """

    graph: str
    sectors: int
    rows: float
    gradients: float

    @property
    def worst(self) -> float:
        return max(self.rows, self.gradients)


@dataclass(frozen=True)
class Proof:
    """The proof that a model is exact, or what it does wrong.

    worst: the largest relative difference in a trial, None where there was none that ended, or it
    is infinite; exchanges: their widths in a forward pass, None where none ended well.
    first_difference: the first layer that makes a difference, and why; None of an exact model.
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
        found = max((trial.worst for trial in self.trials), default=torch.inf)
        return found if found < torch.inf else None

    def summary(self) -> dict[str, Any]:
        """Gives the proof in JSON's types, in short; exchanges: how many."""
        return {
            "model": self.model,
            "exact": self.exact,
            "worst": self.worst,
            "exchanges": None if self.exchanges is None else len(self.exchanges),
            "first_difference": self.first_difference,
        }


def check_model(
    model: nn.Module,
    n_node_features: int,
    n_edge_features: int,
    kind: Kind = "edge",
    users_own: bool = True,
) -> list[int]:
    """Holds `model` to its contract on a small graph, and one of the user's own to the same results
    in sectors as in the whole graph; its weights and torch's random numbers stay as they were.
    Gives the width of each of its exchanges.

    Raises:
        ContractError: the model breaks its contract, or a sector's rows or gradients are not the
            whole graph's.
    """
    sizes = n_node_features, n_edge_features
    widths = check_contract(model, kind, *sizes)
    if users_own:
        with _in_float64():
            for case in cases(sectors.QUICK, *sizes):
                found = _try(_moved(model), case, kind, [])
                if found and not found.endswith(_COARSE):
                    raise ContractError(found)
    return widths


def check_on_all_ranks(
    model: nn.Module, n_node_features: int, n_edge_features: int, config: ModelConfig
) -> None:
    """Checks this rank's `model`, made by `config`, and that all ranks' make the same exchanges.
    Collective.

    Raises:
        InputError: on all ranks, a model breaks its contract (models/protocol.py), or one makes
            another number of exchanges, or wider ones.
    """
    sizes = n_node_features, n_edge_features
    widths = together(lambda: check_model(model, *sizes, config.kind, config.is_users))
    told = f"{len(widths)} of widths {widths}"
    check_agreement({"number of halo exchanges in its model": told})


def prove_configured(config: ModelConfig, n_node_features: int, n_edge_features: int) -> Proof:
    """Builds the model of `config`, with its head for pT if it can have one, and proves it; one of
    ours that computes in bfloat16 is proved in float64, where nothing else of it differs. The same
    settings give the same weights, and the same proof.

    Raises:
        InputError: the model cannot be built.
    """
    if config.precision == "bf16":
        config = config.model_copy(update={"precision": "fp32"})
    sizes = n_node_features, n_edge_features
    try:
        with own_random_numbers(torch.empty(0)):
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
    """Runs a float64 copy of `model` on random graphs, whole and in 2 to 4 sectors of one process,
    forward and backward, and on some of them in eval mode, forward. Torch's random numbers and the
    model stay as they were.

    name: the model's in the proof; that of its class without it.
    """
    name = name or type(model).__name__
    sizes, exchanges, broken = (n_node_features, n_edge_features), None, None
    try:
        exchanges = tuple(check_model(model, *sizes, kind, users_own=False))
    except ContractError as error:
        broken = str(error)
        if any(map(is_lazy, model.parameters())):
            return Proof(name, first_difference=broken)
    # What breaks a promise is told by the layer where it makes a difference, if it does.
    trials: list[Trial] = []
    kinds = [(graph, parts) for graph in sectors.KINDS for parts in sectors.PARTS]
    with _in_float64():
        for case in cases(kinds, *sizes):
            found = _try(_moved(model), case, kind, trials)
            if found:
                return Proof(name, tuple(trials), exchanges, found)
        with torch.no_grad():  # as a trained model is evaluated
            for case in cases(sectors.EVALUATED, *sizes, mode=", eval mode"):
                found = _try(_moved(model).eval(), case, kind, trials)
                if found:
                    return Proof(name, tuple(trials), exchanges, f"{found} ({_EVAL})")
    return Proof(name, tuple(trials), exchanges, broken)


def _try(model: nn.Module, case: Case, kind: Kind, trials: list[Trial]) -> str | None:
    """Compares the whole graph with its parts, and adds the trial to `trials`; says what differs
    first if something does.
    """
    try:
        expected = outcome(model, [case.whole], kind)
        found = compare(outcome(model, case.parts, kind), expected)
        trials.append(Trial(case.graph, len(case.parts), found.rows, found.gradients))
        exact = trials[-1].worst <= min(TOLERANCE.values())
        return None if exact else _difference(model, case, found)
    except SectorError as error:
        return failure(model, error)


def _difference(model: nn.Module, case: Case, found: Difference) -> str | None:
    """Says what differs first, unless by no more than the rounding of the model's own types."""
    made = record(model, case.whole)
    # The floating type of the fewest digits that the model computes in, and where first.
    types = [(step, tensor.dtype) for step, tensors in made.items() for tensor in tensors]
    step, dtype = max(types, key=lambda pair: torch.finfo(pair[1]).eps)
    if dtype not in TOLERANCE:
        layer = told(step.layer, model.get_submodule(step.layer))
        return f"{layer}, {step.what.strip('_')}: computes in {dtype} {_COARSE}"
    tolerance = TOLERANCE[dtype]
    if found.rows > tolerance:
        return first_difference(model, case.whole, case.parts, tolerance, case.why)
    # A backward pass begins at the result, which the last parameters as a rule are nearest to.
    wrong = [name for name, value in found.of_each.items() if value > tolerance]
    if not wrong:
        return None
    if found.gradients == torch.inf:
        return f"{wrong[-1]}: its gradient is not finite in a sector; look for divisions by nothing"
    return (
        f"{wrong[-1]}: its gradient is another in sectors, though all rows are the same; let "
        f"gradients through all that the exchange brings, and recompute no layers with an exchange "
        f"between them (torch.utils.checkpoint)"
    )


def _moved(model: nn.Module) -> nn.Module:
    """Copies a model to float64, as it is trained, its weights moved a little at random: those that
    begin at zero would hide what they weigh.
    """
    made = deepcopy(model).cpu().double().train()
    with torch.no_grad():
        for value in made.parameters():
            width = value.shape[-1] if value.dim() else 1
            value.add_(torch.randn_like(value), alpha=0.1 / max(width, 1) ** 0.5)
    return made


@contextmanager
def _in_float64() -> Iterator[None]:
    """Makes tensors float64 for which a model names no type, with random numbers of its own."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with own_random_numbers(torch.empty(0)):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_default_dtype(before)
