"""Proves that a model gives in sectors what it gives in the whole graph: results and gradients."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from traceback import walk_tb

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from bigtrk.errors import reason
from bigtrk.models.build import make_model
from bigtrk.models.check import check_model, own_random_numbers
from bigtrk.models.layer_names import failing_layer, told
from bigtrk.models.options import Kind
from bigtrk.models.protocol import ContractError
from bigtrk.models.settings import ModelConfig
from bigtrk.models.state_check import check_state
from bigtrk.proof.cases import Case, cases, evaluation_cases
from bigtrk.proof.difference import coarsest, first_difference, record
from bigtrk.proof.lockstep import SectorError
from bigtrk.proof.outcome import Difference, compare, outcome
from bigtrk.proof.probe import users_line
from bigtrk.proof.result import Proof, Trial

# Of the largest value. Rounding gives 1e-16 to 1e-13, a wrong row 1e-4 and more; what a model
# computes in float32 whatever it is given is rounded at 1e-7 to 1e-5.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_EVAL = "in eval mode alone, in which runs are evaluated: let both modes compute the same"


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
        refused = Proof(config.name, first_difference=str(error))
        if error.model is None:
            return refused
        proof = prove(error.model, *sizes, config.kind, config.name)
        return refused if proof.exact else proof
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
    exchanges, broken = None, None
    try:
        check_state(model)  # a copy's parameters lack hooks
        exchanges = tuple(check_model(deepcopy(model), n_node_features, n_edge_features, kind))
    except ContractError as error:
        broken = str(error)
        if any(map(is_lazy, model.parameters())):
            return Proof(name, first_difference=broken)
    # What breaks a promise is told by the layer where it makes a difference, if it does.
    trials: list[Trial] = []
    with own_random_numbers(torch.empty(0)), in_float64():
        torch.manual_seed(0)
        for case in cases(n_node_features, n_edge_features):
            found = _try(_moved(model), case, kind, trials)
            if found:
                return Proof(name, tuple(trials), exchanges, found)
        with torch.no_grad():  # as a trained model is evaluated
            for case in evaluation_cases(n_node_features, n_edge_features):
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
        return _failure(model, error)


def _difference(model: nn.Module, case: Case, found: Difference) -> str | None:
    """Says what differs first, unless by no more than the rounding of the model's own types."""
    step, dtype = coarsest(record(model, case.whole))
    if dtype not in TOLERANCE:
        layer = told(step.layer, model.get_submodule(step.layer))
        return (
            f"{layer}, {step.what.strip('_')}: computes in {dtype} whatever it is "
            f"given, whose rounding hides what is looked for; let it compute in the type of x"
        )
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
        f"gradients through all that the exchange brings"
    )


def _failure(model: nn.Module, error: SectorError) -> str:
    cause = error.__cause__
    if not isinstance(cause, Exception):
        return f"{told('', model)}: {error}"
    frames = [frame for frame, _ in walk_tb(cause.__traceback__)]
    layer = failing_layer(cause) or told("", model)
    said = f"{error} ({type(cause).__name__}: {reason(cause)})"
    return f"{layer}{users_line(reversed(frames))}: {said}"


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
def in_float64() -> Iterator[None]:
    """Makes tensors float64 for which a model names no type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
