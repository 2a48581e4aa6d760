"""Fitting the rates of an accelerator, beside which its host starts operations and reads events.

Reading is measured by itself, and the start of operations on graphs that take an accelerator no
time; what is left of larger ones are its own seconds (`overlapped` in cost/rates.py). Few steps
tell these, since most wait for the host: what they leave open is as a data sheet has it, and there
are no corrections, with which one in ten steps of an H200 was told to take 3.7 times as long.
"""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from bigtrk.cost.activations import columns
from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.cost.rates import Amount, Amounts, Rates, without
from bigtrk.planning.calibration.fitting import (
    Sample,
    computing,
    event_of,
    fit_engines,
    robust_fit,
    sample_cost,
    work_of,
)

# Edges of a graph whose operations an accelerator has done before the next ones are started, at
# most, and those from which on reading them is more than opening a file.
_SMALL, _LARGE = 10_000, 100_000
# What is left for an accelerator counts where it is this part of a step or more: where others take
# 9 tenths of a step, most of what is left is noise.
_OWN = 0.75
_STARTED: tuple[Amount, ...] = ("operations", "steps", "weights")
_COMPUTED: tuple[Amount, ...] = ("fp32", "bf16", "fused", "products", "traffic")


def fit_overlapping(samples: Sequence[Sample], machine: MachineConstants) -> Rates:
    """Fits the rates of one rank to its samples; those of `machine` are assumed."""
    plain = [one for one in samples if one.case.engine == "ddp" and not _travels(one)]
    work = [work_of(sample, machine) for sample in plain]
    seconds = [computing(sample, machine) for sample in plain]
    pairs = list(zip(plain, work, strict=True))
    read = [one.read_seconds / work["batch"] for one, work in pairs if one.case.edges >= _LARGE]
    rates = Rates(seconds={"batch": median(read)}, engines=fit_engines(samples, machine))
    small = [i for i, one in enumerate(plain) if one.case.edges <= _SMALL]
    rates = _with(rates, _STARTED, [work[i] for i in small], [seconds[i] for i in small])
    own = [_own(took, one, rates) for took, one in zip(seconds, work, strict=True)]
    busy = [i for i, took in enumerate(own) if took >= _OWN * seconds[i]]
    assumed = machine.alone.seconds
    return _with(rates, _COMPUTED, [work[i] for i in busy], [own[i] for i in busy], assumed)


def transfer_rate(offloaded: Sample, machine: MachineConstants) -> float:
    """Returns the bytes per second that travel between an accelerator and its host, by a step that
    waits for them.
    """
    assert _travels(offloaded), "its edges stay on the accelerator"
    sector = event_of(offloaded.case).sector(1)
    moved = sample_cost(offloaded, machine).footprint(cut=False).moved @ columns(sector)
    return float(moved) / offloaded.seconds


def _travels(sample: Sample) -> bool:
    return sample.case.recompute == "offload"


def _with(
    rates: Rates,
    kinds: Sequence[Amount],
    work: Sequence[Amounts],
    seconds: Sequence[float],
    assumed: Mapping[Amount, float] | None = None,
) -> Rates:
    """Adds the seconds of each of these amounts to the rates; one that is `assumed` weighs as much
    as a sample.
    """
    known = assumed or {}
    pairs = zip(work, seconds, strict=True)
    rows = [[one.get(kind, 0.0) / took for kind in kinds] for one, took in pairs]
    rows += [[(kind == one) / known[one] for kind in kinds] for one in kinds if one in known]
    fitted = zip(kinds, robust_fit(np.array(rows)).tolist(), strict=True)
    return rates.model_copy(update={"seconds": {**rates.seconds, **dict(fitted)}})


def _own(seconds: float, work: Amounts, rates: Rates) -> float:
    """Returns what is left of a step's seconds for the accelerator."""
    in_step = rates.of({kind: work.get(kind, 0.0) for kind in ("steps", "weights")})
    beside = [rates.of({kind: work[kind]}) for kind in ("operations", "batch")]
    return without(max(seconds - in_step, 0.0), beside)
