"""Fitting a machine's constants to a few measured warm-ups: `bigtrk plan --calibrate`."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import nnls

from bigtrk.console import follow
from bigtrk.files import write_json
from bigtrk.machine import machine, software
from bigtrk.parallel.cost import CostModel
from bigtrk.parallel.event_size import EventSize
from bigtrk.parallel.machine_constants import A100, CPU, MachineConstants
from bigtrk.parallel.sharding import named_sharding
from bigtrk.training.warmup import Case, Measured, measure_apart

# Wide and narrow, few and many operations, both precisions, in chunks and in tensors that leave the
# core's cache; each takes seconds on two cores.
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
# A case of an accelerator is the same many times over: it must outweigh the start of operations.
ON_ACCELERATOR = 20
# Measured also on two ranks at once: tensors that leave the core's cache, and that do not.
BESIDE, BESIDE_CACHED = CASES[0], CASES[-1]
Sample = tuple[Case, Measured]


def calibrate(path: Path) -> MachineConstants:
    """Measure this machine, fit its constants and write them to `path`.

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
            "sharing": 1.0 if on_cuda else _sharing(BESIDE, samples),
            "sharing_cached": 1.0 if on_cuda else _sharing(BESIDE_CACHED, samples),
            "deepspeed_bytes": 0 if on_cuda else _deepspeed_bytes(),
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
    """Constants that agree best with what was measured, relative errors alike; others of `start`.

    The network is not measured.
    """
    fitted = _fit_time(samples, _fit_memory(samples, start) if start.shared else start)
    errors = {
        "memory": [float(_peak(case, fitted) / found.peak_bytes - 1) for case, found in samples],
        "seconds": [float(_seconds(case, fitted) / found.seconds - 1) for case, found in samples],
    }
    return fitted.model_copy(update={"fit": {"relative_errors": errors}})


def _fit_memory(samples: Sequence[Sample], base: MachineConstants) -> MachineConstants:
    """process_bytes: what is measured beyond what is counted, by relative error."""
    bare = base.model_copy(update={"process_bytes": 0})
    counted = np.array([_peak(case, bare) for case, _ in samples])
    peak = np.array([found.peak_bytes for _, found in samples], dtype=np.float64)
    process = ((peak - counted) / peak**2).sum() / (1 / peak**2).sum()
    return base.model_copy(update={"process_bytes": max(0, int(process))})


def _fit_time(samples: Sequence[Sample], base: MachineConstants) -> MachineConstants:
    """Rates, by non-negative least squares: seconds are linear in their inverses."""
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
    """A machine on which only `name` takes time, at a rate of one unit."""
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
    configuration = case.configuration()
    data = configuration.data
    return CostModel(
        configuration.model,
        len(data.node_features),
        len(data.edge_features),
        named_sharding("ddp", 1),
        world=1,
        ranks_per_node=1,
        machine=constants,
    )


def _peak(case: Case, constants: MachineConstants) -> float:
    return _cost(case, constants).memory(EventSize(case.nodes, case.edges), 1).total


def _seconds(case: Case, constants: MachineConstants) -> float:
    cost = _cost(case, constants)
    return cost.seconds(EventSize(case.nodes, case.edges), 1) + cost.step_seconds()


def _sharing(case: Case, alone: Sequence[Sample]) -> float:
    """Seconds of two ranks that share this host, over those of one that does the work of both."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        both = pool.map(lambda case: measure_apart(case, local_size=2), [case, case])
        seconds = sum(one.seconds for one in both) / 2
    return seconds / (2 * dict(alone)[case].seconds)


def _enlarged(case: Case) -> Case:
    return Case(
        **{
            **asdict(case),
            "nodes": case.nodes * ON_ACCELERATOR,
            "edges": case.edges * ON_ACCELERATOR,
        }
    )


def _deepspeed_bytes() -> int:
    """What importing DeepSpeed adds to a process that has torch."""
    code = (
        "import os, torch, torch.distributed\n"
        # Not the largest so far: across exec a process inherits that of its parent.
        "rss = lambda: int(open('/proc/self/statm').read().split()[1])\n"
        "before = rss()\nimport deepspeed\n"
        "print((rss() - before) * os.sysconf('SC_PAGE_SIZE'))"
    )
    environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return int(done.stdout.split()[-1]) if done.returncode == 0 else CPU.deepspeed_bytes
