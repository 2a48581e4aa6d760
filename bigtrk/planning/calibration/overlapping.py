"""Fitting the rates of an accelerator, beside which its host starts operations and reads events.

Reading is measured by itself, and the start of operations on graphs that take an accelerator no
time; what is left of larger ones are its own seconds (`overlapped` in cost/rates.py).
"""

from collections.abc import Sequence
from statistics import median

import numpy as np

from bigtrk.cost.activations import columns
from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.cost.rates import Amount, Amounts, Correction, Rates, without
from bigtrk.planning.calibration.fitting import (
    Sample,
    computing,
    correction,
    event_of,
    fit_engines,
    robust_fit,
    sample_cost,
    work_of,
)
from bigtrk.planning.calibration.smoothing import smoothed

# Edges of a graph whose operations an accelerator has done before the next ones are started, at
# most, and those from which on reading them is more than opening a file.
_SMALL, _LARGE = 10_000, 100_000
# What is left for an accelerator counts where it is this part of a step, or more; else it is known
# to be no more.
_OWN = 0.5
_STARTED: tuple[Amount, ...] = ("operations", "steps", "weights")
_COMPUTED: tuple[Amount, ...] = ("fp32", "bf16", "products", "traffic")


def fit_overlapping(samples: Sequence[Sample], machine: MachineConstants) -> Rates:
    """Fits the rates of one rank to its samples."""
    plain = [one for one in samples if one.case.engine == "ddp" and not _travels(one)]
    work = [work_of(sample, machine) for sample in plain]
    seconds = [computing(sample, machine) for sample in plain]
    pairs = [(one, work) for one, work in zip(plain, work, strict=True)]
    read = [one.read_seconds / work["batch"] for one, work in pairs if one.case.edges >= _LARGE]
    rates = Rates(seconds={"batch": median(read)})
    small = [i for i, one in enumerate(plain) if one.case.edges <= _SMALL]
    rates = _with(rates, _STARTED, [work[i] for i in small], [seconds[i] for i in small])
    own = [_own(took, one, rates) for took, one in zip(seconds, work, strict=True)]
    busy = [i for i, took in enumerate(own) if took >= _OWN * seconds[i]]
    rates = _with(rates, _COMPUTED, [work[i] for i in busy], [own[i] for i in busy])
    most = [max(took, _OWN * step) for took, step in zip(own, seconds, strict=True)]
    found = [_correction(*one, rates) for one in zip(plain, most, work, strict=True)]
    known = [one for i, one in enumerate(found) if i in busy or one.factor < 1]
    engines = fit_engines(samples, machine)
    return rates.model_copy(update={"corrections": smoothed(known), "engines": engines})


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
    rates: Rates, kinds: Sequence[Amount], work: Sequence[Amounts], seconds: Sequence[float]
) -> Rates:
    """Adds the seconds of each of these amounts to the rates."""
    design = np.array([[one.get(kind, 0.0) for kind in kinds] for one in work])
    found = robust_fit(design / np.array(seconds)[:, None]).tolist()
    known = {kind: value for kind, value in zip(kinds, found, strict=True) if value}
    return rates.model_copy(update={"seconds": {**rates.seconds, **known}})


def _own(seconds: float, work: Amounts, rates: Rates) -> float:
    """Returns what is left of a step's seconds for the accelerator."""
    in_step = rates.of({kind: work.get(kind, 0.0) for kind in ("steps", "weights")})
    beside = [rates.of({kind: work[kind]}) for kind in ("operations", "batch")]
    return without(max(seconds - in_step, 0.0), beside)


def _correction(sample: Sample, own: float, work: Amounts, rates: Rates) -> Correction:
    counted = rates.of({kind: work.get(kind, 0.0) for kind in _COMPUTED})
    return correction(sample.case, counted, own / counted)
