"""Counts what each launch over a layer's edges computes and moves, on two large graphs.

    BIGTRK_TESTDATA=... python scripts/bench/kernel_traffic.py [--work FOLDER] [--output FILE]
        [--quick | --publish]

The graphs are event 1000's by windows learnt above 0.3 GeV (3.0 M edges) and a simulated one of the
size of Tripathy et al.'s CTD (0.33 M nodes, 6.8 M edges); they are kept under --work. Bytes are
counted from the kernels' own schedule (bigtrk/models/edges/work.py), of the default model, with
the L2 of an A100, the smallest of the three GPUs' (scripts/bench/memory_reads.py). Launches are
those of a step in Triton's interpreter, beside which the operations of the node network and of the
decoder are counted; atomics and spilled registers those of every kernel and option up to hidden
128, compiled for compute capabilities 8.0, 9.0 and 10.0. Nothing is timed. The last line is one
JSON object: the most launches of a layer's pass over its edges, the largest ratio of the bytes
moved to those that must move, the atomic operations, the bytes spilled at hidden 128. Other widths
have their largest ratios in the result file (`other_widths`).
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from bigtrk.console import Screen, exit_on_bad_input, follow, say
from bigtrk.cost.data_sheets import A100, WHOLE_SHEETS
from bigtrk.graphs.sector import edge_order
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.models.edges import schedule
from bigtrk.models.edges.work import Shape, Work
from scripts.bench.memory_reads import Graph, shape_of
from scripts.results import CHECKOUT, Results, add_options
from scripts.scaling.partition_volumes import CASES, Case, graphs_of
from tests.models.compiled import CAPABILITIES, ROWS, compiled, every_case
from tests.models.launches import of_edges

GRAPHS = (
    CASES[1],
    Case("simulated, CTD size", 30_700, ("--learn-windows", "--pt-min", "1.0")),
)
QUICK = (Case("simulated, 2,000 hits", 200),)
HIDDEN, TYPES = (64, 128), {"bf16": torch.bfloat16, "fp32": torch.float32}
# Widths at which an L2 may not hold what programs of the backward pass use again.
OTHER_WIDTHS = (32, 256)
COMPILED = (32, 64, 100, 128)
Row = dict[str, Any]


def graph_of(case: Case, work: Path) -> Graph:
    """Reads a case's graph, which is made where it is not there, with its edges in the order that
    a training has them in.
    """
    folder = GraphFolder(graphs_of(case, work))
    event = next(iter(folder.events))
    edges, n_nodes = folder.read(event).edge_index, folder.record(event)["nodes"]
    return Graph(edges[:, edge_order(edges, n_nodes)].numpy(), n_nodes)


def launches(graph: Graph, shape: Shape, at_work: int, l2_bytes: float) -> dict[str, Work]:
    """Counts the launches over the edges of a layer between two others."""
    n_nodes, n_edges = graph.n_nodes, graph.n_edges
    summed = graph.sums(shape, l2_bytes)
    backward = graph.backward(shape, at_work, l2_bytes)
    return {
        "forward": shape.forward(n_edges, graph.forward(shape, l2_bytes)),
        "sums, forward": shape.sum_at_ends(n_nodes, summed, streams=1, adds=False),
        "backward": shape.backward(n_edges, backward, given=True),
        "sums of weights' gradients": shape.sum_partials(n_edges, adds=False),
        "sums, backward": shape.sum_at_ends(n_nodes, summed, streams=2, adds=False),
    }


def rows_of(
    name: str,
    graph: Graph,
    registers: dict[tuple[int, str], int],
    widths: Sequence[int] = HIDDEN,
) -> list[Row]:
    """Counts all launches on a graph. registers: those of a thread of the backward pass, by width
    and precision.
    """
    rows = []
    for hidden, (precision, dtype) in itertools.product(widths, TYPES.items()):
        shape, warps = shape_of(hidden, dtype), schedule.tile(hidden, dtype).warps
        used = registers[hidden, precision]
        at_work = {sheet.name: sheet.programs_at_work(warps, used) for sheet in WHOLE_SHEETS}
        size = {"graph": name, "nodes": graph.n_nodes, "edges": graph.n_edges}
        case = {**size, "hidden": hidden, "precision": precision}
        by_share = {}
        for share in (1.0, 0.5):
            in_l2 = all(
                at_work[sheet.name] * shape.block_bytes() <= share * sheet.l2_bytes
                for sheet in WHOLE_SHEETS
            )
            found = launches(graph, shape, at_work[A100.name], share * A100.l2_bytes)
            by_share[share] = [
                row_of(*one, in_l2, dtype == torch.bfloat16) for one in found.items()
            ]
        for row, half in zip(by_share[1.0], by_share[0.5], strict=True):
            rows.append({**case, **row, "ratio_half_the_l2": half["ratio"]})
    return rows


def row_of(launch: str, work: Work, in_l2: bool, bf16: bool) -> Row:
    """Makes a launch's row; in_l2: what programs use again stays in the L2."""
    moved = work.moved + (0.0 if in_l2 else work.again)
    intensity = work.flops / moved
    roofline = {
        sheet.name: {
            "bound": "memory" if intensity * sheet.bandwidth < sheet.flops(bf16) else "products",
            "flops_per_second": sheet.attainable(intensity, bf16),
            "seconds": max(work.flops / sheet.flops(bf16), moved / sheet.bandwidth),
        }
        for sheet in WHOLE_SHEETS
    }
    return {
        "launch": launch,
        "flops": work.flops,
        "least_bytes": work.least,
        "moved_bytes": moved,
        "again_in_l2_bytes": work.again if in_l2 else 0.0,
        "ratio": moved / work.least,
        "intensity": intensity,
        "roofline": roofline,
    }


def started() -> list[Any]:
    """Returns what steps of the fused layers start, by part, in Triton's interpreter."""
    command = [sys.executable, "-m", "tests.models.launches"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        command, env=environment, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True
    )
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def beside(parts: dict[str, list[str]]) -> dict[str, int]:
    """Counts what a step's layers start beside the edges' passes, for a chunk of nodes and a chunk
    of decoded edges.
    """
    edges = of_edges(parts)
    return {part: len(names) for part, names in parts.items() if part not in edges}


def kernels(quick: bool) -> list[Row]:
    """Compiles every kernel and option up to hidden 128, or few of them."""
    widths, capabilities = (HIDDEN[-1:], CAPABILITIES[:1]) if quick else (COMPILED, CAPABILITIES)
    asked = [every_case(*one) for one in itertools.product(widths, capabilities)]
    with (
        tempfile.TemporaryDirectory(prefix="bigtrk-kernels-") as folder,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        groups = pool.map(lambda cases: compiled(cases, Path(folder)), asked)
        found = [one for group in follow(groups, len(asked), "compiled") for one in group]
    return [{key: value for key, value in one.items() if key != "sums"} for one in found]


def registers_of(found: list[Row]) -> dict[tuple[int, str], int]:
    """Returns the fewest registers of a thread of the backward pass, by width and precision: with
    these most programs are at work. Of widths that are not compiled it is all that a thread has.
    """
    known: dict[tuple[int, str], int] = {}
    widths = (*HIDDEN, *OTHER_WIDTHS)
    for hidden, (precision, rows) in itertools.product(widths, zip(TYPES, ROWS, strict=True)):
        own = [
            one["registers"]
            for one in found
            if (one["kernel"], one["rows"], one["layers"]) == ("backward", rows, 2)
            and one["hidden"] == hidden
            and one["options"] == ["encoded"]
        ]
        known[hidden, precision] = min(own, default=schedule.REGISTERS)
    return known


def worst_ratios(rows: Sequence[Row]) -> dict[str, float]:
    """Returns the largest ratio of any launch at each width and precision, as "fp32_h32"."""
    found: dict[str, float] = {}
    for row in rows:
        name = f"{row['precision']}_h{row['hidden']}"
        found[name] = max(row["ratio"], found.get(name, 0.0))
    return found


def table(rows: list[Row]) -> Table:
    names = ("graph", "hidden", "precision", "launch", "GFLOP", "must GB", "moved GB", "ratio")
    shown = Table(*names, "flop/byte", "with half the L2")
    for row in rows:
        shown.add_row(
            *(str(row[name]) for name in ("graph", "hidden", "precision", "launch")),
            f"{row['flops'] / 1e9:,.0f}",
            *(f"{row[name] / 1e9:.2f}" for name in ("least_bytes", "moved_bytes")),
            f"{row['ratio']:.2f}",
            f"{row['intensity']:.0f}",
            f"{row['ratio_half_the_l2']:.2f}",
        )
    return shown


def summary(rows: list[Row], steps: list[Any], compiled_ones: list[Row]) -> dict[str, float]:
    """Makes the last line."""
    spilled = [one["spilled"] for one in compiled_ones if one["hidden"] == 128]
    return {
        "launches_per_layer_and_pass": max(
            len(names) for *_, parts in steps for names in of_edges(parts).values()
        ),
        "traffic_ratio": max(row["ratio"] for row in rows),
        "float_atomics": sum(len(one["atomics"]) for one in compiled_ones),
        "spills_h128": sum(spilled),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, help="kept; a new folder by default")
    add_options(parser, quick="a small graph, and kernels of hidden 128 for one GPU")
    arguments = parser.parse_args()
    results = Results("kernels", arguments)
    steps, found = started(), kernels(arguments.quick)
    rows: list[Row] = []
    others: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bigtrk-traffic-") as folder:
        work = (arguments.work or Path(folder)).resolve()
        for case in QUICK if arguments.quick else GRAPHS:
            graph = graph_of(case, work)
            say(f"{case.name}: {graph.n_nodes:,} nodes, {graph.n_edges:,} edges")
            rows += rows_of(case.name, graph, registers_of(found))
            others += rows_of(case.name, graph, registers_of(found), OTHER_WIDTHS)
    Screen(width=150).print(table(rows))
    results.write(
        summary(rows, steps, found),
        worst_ratio_half_the_l2=max(row["ratio_half_the_l2"] for row in rows),
        l2_megabytes=A100.l2_bytes / 1e6,
        data_sheets=[asdict(sheet) for sheet in WHOLE_SHEETS],
        rows=rows,
        other_widths=worst_ratios(others),
        launches=[
            {"options": options, "edges": n, "ranges": of_edges(parts), "beside": beside(parts)}
            for options, n, parts in steps
        ],
        kernels=found,
    )


if __name__ == "__main__":
    exit_on_bad_input("kernel_traffic.py", main)
