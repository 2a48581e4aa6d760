"""Fitting a machine's rates to measured steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.cost.model import CostModel
from bigtrk.cost.rates import (
    ENGINE_AMOUNTS,
    KINDS,
    Amounts,
    Correction,
    EngineAmount,
    EngineKind,
    Rates,
)
from bigtrk.planning.calibration.least_squares import non_negative
from bigtrk.planning.calibration.smoothing import smoothed
from bigtrk.planning.calibration.warmup_cases import Case
from bigtrk.training.costs import make_cost

# A residual beyond it counts less in the fit: steps that ask the system for memory take twice as
# long at times.
_USUAL = 0.05
_ROUNDS = 20
# The share of a step from which on its residual is that of the model's pass. With 0.8 narrow
# models in bf16 on several ranks had none, of which steps were predicted 30 to 50 % too short.
_MOST = 0.5


@dataclass(frozen=True)
class Sample:
    """The measured median seconds of a step and peak bytes of a rank, with the graphs of a case on
    each of `ranks` ranks of a host, or on the first alone. read_seconds: those of reading them for
    an accelerator; 0 on a CPU, whose ranks read on the cores that compute.
    """

    case: Case
    ranks: int
    seconds: float
    peak_bytes: int
    read_seconds: float = 0.0


def sample_cost(sample: Sample, machine: MachineConstants) -> CostModel:
    """Makes the cost model of a sample's step."""
    ranks = sample.ranks
    return make_cost(sample.case.configuration(ranks), ranks, ranks, machine)


def predicted_seconds(sample: Sample, machine: MachineConstants) -> float:
    """Predicts the seconds of a sample's step."""
    cost, events = sample_cost(sample, machine), sample.case.events
    return events * cost.seconds(event_of(sample.case), 1, 1) + cost.step_seconds(events)


def predicted_peak(case: Case, machine: MachineConstants) -> float:
    """Predicts the peak bytes of a rank that trains a case alone."""
    cost = make_cost(case.configuration(), 1, 1, machine)
    return cost.memory(event_of(case), 1, 1).total


def fit_rates(samples: Sequence[Sample], machine: MachineConstants) -> Rates:
    """Fits rates to samples that all have as many ranks, whose links are those of `machine`.

    Seconds are linear in the seconds per amount: non-negative least squares of relative errors,
    large ones counting less. What is left of a model, smoothed, is its correction.
    """
    plain = [sample for sample in samples if sample.case.engine == "ddp"]
    work = [work_of(sample, machine) for sample in plain]
    design = np.array([[one.get(kind, 0.0) for kind in KINDS] for one in work])
    seconds = np.array([computing(sample, machine) for sample in plain])
    found = robust_fit(design / seconds[:, None])
    known = zip(KINDS, found.tolist(), strict=True)
    rates = Rates(seconds={kind: value for kind, value in known if value})
    return rates.model_copy(
        update={
            "corrections": smoothed(_corrections(plain, machine, rates)),
            "engines": fit_engines(samples, machine),
        }
    )


def event_of(case: Case) -> EventSize:
    """Returns the size of a case's graph."""
    return EventSize(case.nodes, case.edges)


def work_of(sample: Sample, machine: MachineConstants) -> Amounts:
    """Counts the work of a sample's step."""
    cost, events = sample_cost(sample, machine), sample.case.events
    in_pass = cost.pass_amounts(event_of(sample.case).sector(1), 1)
    in_all: Amounts = {kind: events * amount for kind, amount in in_pass.items()}
    return {**in_all, **cost.step_amounts()}


def computing(sample: Sample, machine: MachineConstants) -> float:
    """Returns the seconds of a sample's step without its reductions."""
    reduced = sample_cost(sample, machine).reduction_seconds(sample.case.events)
    return max(sample.seconds - reduced, sample.seconds / 2)


def robust_fit(design: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solves design @ x = 1 for x >= 0, with weights that fall with a residual's size."""
    weights = np.ones(len(design))
    for _ in range(_ROUNDS):
        found = non_negative(design * weights[:, None], weights)
        weights = 1 / np.sqrt(np.maximum(np.abs(design @ found - 1), _USUAL))
    return found


def _corrections(
    samples: Sequence[Sample], machine: MachineConstants, rates: Rates
) -> list[Correction]:
    """Returns the measured over the fitted seconds of passes that are most of a step."""
    found = []
    for sample in samples:
        case, cost = sample.case, sample_cost(sample, machine)
        in_pass = rates.of(cost.pass_amounts(event_of(case).sector(1), 1))
        others = rates.of(cost.step_amounts())
        in_passes, seconds = case.events * in_pass, computing(sample, machine)
        if in_passes < _MOST * (in_passes + others):
            continue
        factor = max((seconds - others) / in_passes, 0.1)
        found.append(
            Correction(
                model=case.name,
                recompute=case.recompute,
                precision=case.precision,
                hidden=case.hidden,
                degree=case.edges / case.nodes,
                seconds=in_pass,
                factor=factor,
            )
        )
    return found


def fit_engines(
    samples: Sequence[Sample], machine: MachineConstants
) -> dict[EngineKind, dict[EngineAmount, float]]:
    """Fits what a step of each engine takes more than one of DDP on the same case."""
    plain = {one.case: computing(one, machine) for one in samples if one.case.engine == "ddp"}
    kinds = [sample_cost(sample, machine).sharding.kind for sample in samples]
    found: dict[EngineKind, dict[EngineAmount, float]] = {}
    for kind in {kind for kind in kinds if kind}:
        own = [sample for sample, its in zip(samples, kinds, strict=True) if its == kind]
        seconds = np.array([computing(sample, machine) for sample in own])
        ddp = np.array([plain[replace(sample.case, engine="ddp")] for sample in own])
        costs = [(sample_cost(one, machine), one.case.events) for one in own]
        amounts = [cost.engine_amounts(events) for cost, events in costs]
        design = np.array([[one[name] for name in ENGINE_AMOUNTS] for one in amounts])
        more = non_negative(design / seconds[:, None], (seconds - ddp) / seconds)
        found[kind] = dict(zip(ENGINE_AMOUNTS, more.tolist(), strict=True))
    return found


def relative_errors(samples: Sequence[Sample], machine: MachineConstants) -> list[float]:
    """Returns the relative errors of the predicted seconds."""
    return [predicted_seconds(sample, machine) / sample.seconds - 1 for sample in samples]


def without_corrections(machine: MachineConstants) -> MachineConstants:
    """Returns the machine with what is counted alone."""
    bare = {
        name: getattr(machine, name).model_copy(update={"corrections": []})
        for name in ("alone", "together")
    }
    return machine.model_copy(update=bare)
