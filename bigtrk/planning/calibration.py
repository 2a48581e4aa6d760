"""Fitting a machine's constants to a few measured warm-ups: `bigtrk plan --calibrate`."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import nnls

from bigtrk.console import follow
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import A100, CPU, MachineConstants
from bigtrk.cost.model import CostModel
from bigtrk.disk.files import write_json
from bigtrk.errors import InputError
from bigtrk.machine import machine, software
from bigtrk.planning.warmup import Case, Measured, measure_apart
from bigtrk.training.costs import make_cost

# The cases are wide and narrow, of few and many operations, in both precisions, in chunks and in
# tensors that leave the core's cache; each takes seconds on two cores.
CASES = (
    Case(20_000, 60_000, 64, recompute="layer"),
    Case(4_000, 20_000, 256, layers=2),
    Case(40_000, 80_000, 32),
    Case(10_000, 100_000, 64, layers=3, recompute="none"),
    Case(15_000, 150_000, 64, layers=3, steps=3),
    Case(15_000, 280_000, 32, recompute="layer", steps=3),
    Case(4_000, 20_000, 256, layers=2, precision="bf16"),
    Case(20_000, 60_000, 64, precision="bf16"),
    Case(10_000, 150_000, 64, layers=3, precision="bf16"),
    Case(500, 1_500, 32, layers=8, steps=12),
    Case(7_000, 12_000, 64, steps=12),
)
# On an accelerator a case is enlarged so many times, to outweigh the start of operations.
ON_ACCELERATOR = 20
# These are also measured on two ranks at once: tensors that leave the core's cache, and that do
# not.
BESIDE, BESIDE_CACHED = CASES[0], CASES[-1]
Sample = tuple[Case, Measured]


def calibrate(path: Path) -> MachineConstants:
    """Measures this machine, fits its constants and writes them to `path`.

    Raises:
        InputError: a warm-up failed.
    """
    on_cuda = torch.cuda.is_available()
    cases = [_enlarged(case) for case in CASES] if on_cuda else list(CASES)
    samples = [(case, measure_apart(case)) for case in follow(cases, len(cases), "warm-up")]
    constants = fit(samples, A100 if on_cuda else CPU)
    fitted = constants.model_copy(
        update={
            "name": f"fitted on {machine()['host']}, {datetime.now(UTC):%Y-%m-%d}",
            "accelerator": machine()["accelerator"],
            "exceeded": {},
            "sharing": 1.0 if on_cuda else _sharing(BESIDE, samples),
            "sharing_cached": 1.0 if on_cuda else _sharing(BESIDE_CACHED, samples),
            **({} if on_cuda else _modules_bytes(samples)),
            "fit": {
                **constants.fit,
                "machine": machine(),
                "software": software(),
                "samples": [{**asdict(case), **asdict(found)} for case, found in samples],
            },
        }
    )
    write_json(path, fitted.model_dump(mode="json"))
    return fitted


def fit(samples: Sequence[Sample], start: MachineConstants) -> MachineConstants:
    """Fits the constants to the samples by relative errors; those not fitted are `start`'s.

    The network is not measured.
    """
    fitted = _fit_time(samples, _fit_memory(samples, start) if start.shared else start)
    errors = {
        "memory": [float(_peak(case, fitted) / found.peak_bytes - 1) for case, found in samples],
        "seconds": [float(_seconds(case, fitted) / found.seconds - 1) for case, found in samples],
    }
    return fitted.model_copy(update={"fit": {"relative_errors": errors}})


def _fit_memory(samples: Sequence[Sample], base: MachineConstants) -> MachineConstants:
    """Fits process_bytes, the measured bytes beyond those counted, by relative error."""
    bare = base.model_copy(update={"process_bytes": 0})
    counted = np.array([_peak(case, bare) for case, _ in samples])
    peak = np.array([found.peak_bytes for _, found in samples], dtype=np.float64)
    process = ((peak - counted) / peak**2).sum() / (1 / peak**2).sum()
    return base.model_copy(update={"process_bytes": max(0, int(process))})


def _fit_time(samples: Sequence[Sample], base: MachineConstants) -> MachineConstants:
    """Fits the rates by non-negative least squares: seconds are linear in their inverses."""
    basis = ("fp32", "bf16", "traffic", "cached", "operation")
    rows = [[_seconds(case, _only(base, name)) for name in basis] for case, _ in samples]
    seconds = np.array([found.seconds for _, found in samples])
    weights = nnls(np.array(rows) / seconds[:, None], np.ones(len(samples)))[0]
    found = dict(zip(basis, weights, strict=True))
    rate = {name: float(_UNIT / max(found[name], 1e-12)) for name in basis[:-1]}
    return base.model_copy(
        update={
            "flops": {"fp32": rate["fp32"], "bf16": rate["bf16"]},
            "traffic": rate["traffic"],
            "cached": rate["cached"],
            "operation": float(found["operation"]) * 1e-6,
        }
    )


_UNIT = 1e9
_NEVER = 1e300


def _only(base: MachineConstants, name: str) -> MachineConstants:
    """Returns a machine on which only `name` takes time, at a rate of one unit."""
    flops = {precision: _UNIT if precision == name else _NEVER for precision in ("fp32", "bf16")}
    return base.model_copy(
        update={
            "flops": flops,
            "traffic": _UNIT if name == "traffic" else _NEVER,
            "cached": _UNIT if name == "cached" else _NEVER,
            "operation": 1e-6 if name == "operation" else 0.0,
        }
    )


def _cost(case: Case, constants: MachineConstants) -> CostModel:
    return make_cost(case.configuration(), 1, 1, constants)


def _peak(case: Case, constants: MachineConstants) -> float:
    return _cost(case, constants).memory(EventSize(case.nodes, case.edges), 1, 1).total


def _seconds(case: Case, constants: MachineConstants) -> float:
    cost = _cost(case, constants)
    return cost.seconds(EventSize(case.nodes, case.edges), 1, 1) + cost.step_seconds()


def _sharing(case: Case, alone: Sequence[Sample]) -> float:
    """Measures seconds of two ranks that share this host, over those of one doing all the work."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        both = pool.map(lambda case: measure_apart(case, local_size=2), [case, case])
        seconds = sum(one.seconds for one in both) / 2
    return seconds / (2 * dict(alone)[case].seconds)


def _enlarged(case: Case) -> Case:
    more = ON_ACCELERATOR
    return replace(case, nodes=case.nodes * more, edges=case.edges * more)


def _modules_bytes(samples: Sequence[Sample]) -> dict[str, int]:
    """Measures what the modules of DeepSpeed and ZeRO add to a process, by the smallest case."""
    smallest, alone = min(samples, key=lambda sample: sample[0].edges)
    try:
        plain, zero = (
            measure_apart(replace(smallest, engine=engine)).peak_bytes
            for engine in ("zero0", "zero1")
        )
    except InputError:  # DeepSpeed compiles an operation, for which a host may have no compiler
        return {"deepspeed_bytes": CPU.deepspeed_bytes, "zero_bytes": CPU.zero_bytes}
    return {
        "deepspeed_bytes": max(0, plain - alone.peak_bytes),
        "zero_bytes": max(0, zero - plain),
    }
