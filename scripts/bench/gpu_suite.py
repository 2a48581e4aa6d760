"""Runs all that wants a GPU: the tests, then times beside what the device allows, and errors.

    python scripts/bench/gpu_suite.py [--output FILE] [--publish]

Passes over edges, and training steps on one graph. Floors are at rates measured on the same
device: of copying a tensor, and of products of large matrices. Times are medians, by the device's
clock. Errors are the largest against float64, over its spread. Without a GPU all of this stays
empty. The last line is one JSON object.
"""

import argparse
import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.table import Table
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.console import Screen, exit_on_bad_input, follow, say
from bigtrk.cost.footprint import footprint
from bigtrk.machine import version
from bigtrk.models.kernels import plain, triton_passes
from bigtrk.models.kernels.plain import Ends
from bigtrk.models.settings import InteractionGNNConfig
from scripts.bench.bench_hot_path import SIDES, SIZES, Case, F, G, graph, logits_of, models
from scripts.results import Results, add_options

CHECKOUT = Path(__file__).resolve().parents[2]
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PASSES = "norm_relu", "norm_relu_backward", "relu_backward"
ROWS_MOVED = 3  # tensors of rows that each pass reads or writes
# Tensors of all edges that a layer must read or write, since the nodes' update comes between two
# layers: forward e, e0 and the new e; backward these and the gradients of all three, that of e0
# being read and written.
STREAMS = 3 + 7
Row = dict[str, Any]


@dataclass(frozen=True)
class Rates:
    """Bytes per second that a copy reads and writes; operations per second by precision."""

    copy: float
    flops: dict[str, float]


@dataclass(frozen=True)
class PassCase:
    """A pass over the edges of a graph, with their ends."""

    name: str
    size: str
    hidden: int
    precision: str

    def bytes(self) -> int:
        """Counts every row, every statistic, every node's share and every index once."""
        n_nodes, n_edges = SIZES[self.size]
        moved = ROWS_MOVED * n_edges * self.hidden * TYPES[self.precision].itemsize
        if self.name != "relu_backward":
            moved += n_edges * 4
        if self.name != "norm_relu_backward":
            moved += 2 * n_nodes * self.hidden * TYPES[self.precision].itemsize + 2 * n_edges * 8
        return moved

    def arguments(self, exact: bool = False) -> tuple[Tensor, list[Tensor | Ends]]:
        """Returns the rows that the pass makes, and all it is called with, those included; the same
        numbers in float64 if `exact`.
        """
        n_nodes, n_edges = SIZES[self.size]
        generator = torch.Generator("cuda").manual_seed(0)
        shapes = (n_nodes, self.hidden), (n_edges, self.hidden)
        values = [
            torch.randn(shape, device="cuda", generator=generator).to(TYPES[self.precision])
            for shape in shapes
            for _ in range(2)
        ]
        rstd = torch.rand(n_edges, 1, device="cuda", generator=generator)
        if exact:
            values, rstd = [value.double() for value in values], rstd.double()
        of_source, of_destination, grad, normal = values
        edge_index = graph(Case("reference", self.size))[2].cuda()
        ends, out = Ends.between(of_source, of_destination, edge_index), torch.empty_like(grad)
        calls: dict[str, list[Tensor | Ends]] = {
            "norm_relu": [grad, ends, out, rstd],
            "norm_relu_backward": [grad, normal, rstd, out],
            "relu_backward": [grad, normal, ends, out],
        }
        return out, calls[self.name]


def seconds(call: Callable[[], object], repeats: int = 20) -> float:
    """Returns the median by the device's clock, after calls that compile and fill its caches."""
    for _ in range(3):
        call()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in marks:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return float(median(start.elapsed_time(end) for start, end in marks)) / 1e3


def rates() -> Rates:
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    copied = 2 * source.nbytes / seconds(partial(torch.empty_like(source).copy_, source))
    size, flops = 8192, {}
    for precision, dtype in TYPES.items():
        matrix = torch.randn(size, size, device="cuda", dtype=dtype)
        flops[precision] = 2 * size**3 / seconds(partial(torch.mm, matrix, matrix))
    return Rates(copied, flops)


def error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).abs().max() / exact.std())


def pass_row(case: PassCase, device: Rates | None) -> Row:
    """Measures one pass in each form."""
    row: Row = {**asdict(case), "bytes": case.bytes()}
    columns = ("floor_seconds", "triton_seconds", "plain_seconds", "compiled_seconds", "error")
    if device is None:
        return {**row, **dict.fromkeys(columns)}
    own, oracle = getattr(triton_passes, case.name), getattr(plain, case.name)
    out, arguments = case.arguments()
    exact, doubled = case.arguments(exact=True)
    own(*arguments)
    oracle(*doubled)
    off = error(out, exact)
    torch.compiler.reset()  # it gives up after eight shapes
    forms = (own, oracle, torch.compile(oracle, dynamic=False))
    times = [seconds(partial(form, *arguments)) for form in forms]
    values = (case.bytes() / device.copy, *times, off)
    return {**row, **dict(zip(columns, values, strict=True))}


def step_row(case: Case, device: Rates | None) -> Row:
    """Measures a training step. Its floors: products, none computed twice, and STREAMS."""
    n_nodes, n_edges = SIZES[case.size]
    precision = SIDES[case.side][1]
    config = InteractionGNNConfig(hidden=case.hidden, layers=case.layers, recompute="none")
    products = footprint(config, F, G, cut=False).flops @ [n_edges, n_nodes, n_nodes, 1]
    moved = STREAMS * case.layers * n_edges * case.hidden * TYPES[precision].itemsize
    row: Row = {name: asdict(case)[name] for name in ("side", "size", "hidden", "layers")}
    row |= {"flops": float(products), "bytes": moved}
    measured = ("seconds", "peak_bytes", "error")
    if device is None:
        return row | dict.fromkeys(("flop_floor_seconds", "byte_floor_seconds", *measured))
    row["flop_floor_seconds"] = row["flops"] / device.flops[precision]
    row["byte_floor_seconds"] = row["bytes"] / device.copy
    return row | (measure_step(case) or dict.fromkeys(measured))


def measure_step(case: Case) -> Row | None:
    """Returns seconds, bytes above weights and inputs, logits' error; None if memory ran out."""
    torch.cuda.empty_cache()
    try:
        model, reference = (model.cuda() for model in models(case))
        x, edge_features, edge_index = (part.cuda() for part in graph(case))
        inputs = x, edge_features, edge_index
        labels = torch.zeros(len(edge_features), device="cuda")

        def step() -> None:
            binary_cross_entropy_with_logits(logits_of(model, inputs), labels).backward()
            model.zero_grad()

        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        took = seconds(step, repeats=10)
        peak = torch.cuda.max_memory_allocated() - base
        with torch.no_grad():
            found = logits_of(model, inputs)
            exact = reference.double()(x.double(), edge_features.double(), edge_index)
        return {"seconds": took, "peak_bytes": peak, "error": error(found, exact)}
    except torch.OutOfMemoryError:
        return None


def run_tests() -> Row:
    """Runs the tests marked `gpu`: says whether all passed, and pytest's last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu"]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=False)
    for line in done.stdout.splitlines():
        say(line)
    return {"passed": not done.returncode, "summary": (done.stdout.splitlines() or [""])[-1]}


def table(rows: list[Row]) -> Table:
    shown = Table(*(name.replace("_", " ") for name in rows[0]))
    for row in rows:
        shown.add_row(*(cell(value) for value in row.values()))
    return shown


def cell(value: str | float | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.3g}"


def summary(passes: list[Row], steps: list[Row], tests: Row | None) -> Row:
    """Makes the last line: over the floor, the median pass and the step chosen for large events."""
    large = next(row for row in steps if (row["side"], row["size"]) == ("chunk bf16", "1 M"))
    floors = [large["flop_floor_seconds"], large["byte_floor_seconds"]]
    timed = [row for row in passes if row["triton_seconds"]]
    ratios = [row["triton_seconds"] / row["floor_seconds"] for row in timed]
    return {
        "tests_passed": tests and tests["passed"],
        "pass_over_floor": median(ratios) if ratios else None,
        "step_over_floor": large["seconds"] / max(floors) if large["seconds"] else None,
    }


def main() -> None:
    """Tests, measures, writes, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser)
    results = Results("gpu", parser.parse_args())
    device = tests = None
    if torch.cuda.is_available():
        tests, device = run_tests(), rates()
    else:
        say("There is no GPU here: nothing is tested or measured.")
    sizes = ("300 K", "1 M")
    pass_cases = list(
        itertools.starmap(PassCase, itertools.product(PASSES, sizes, (64, 128), TYPES))
    )
    step_cases = list(itertools.starmap(Case, itertools.product(SIDES, sizes, (64, 128))))
    passes = [pass_row(case, device) for case in follow(pass_cases, len(pass_cases), "passes")]
    steps = [step_row(case, device) for case in follow(step_cases, len(step_cases), "steps")]
    if device:
        Screen(width=150).print(table(passes), table(steps))
    facts = {"tests": tests, "rates": device and asdict(device), "triton": version("triton")}
    results.write(summary(passes, steps, tests), **facts, passes=passes, steps=steps)
    raise SystemExit(bool(tests and not tests["passed"]))


if __name__ == "__main__":
    exit_on_bad_input("gpu_suite.py", main)
