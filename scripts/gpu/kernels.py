"""Counts what a training step asks of a GPU, on a machine without one: docs/results/kernels.json.

    python scripts/gpu/kernels.py [--output FILE] [--publish]

Launches and bytes of a whole step at hidden 64 in bfloat16, at each number of edges
(tests/models/launches.py); atomics, registers and spills of the kernels, as compiled for compute
capability 9.0; CPU-ms of one thread to prepare an event of 3.0 M edges for a GPU, with copies to
host memory in the place of pinned ones, at the first read and at later ones (the median). The last
line is one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from bigtrk import process
from bigtrk.console import exit_on_bad_input
from bigtrk.graphs.storage.event_folder import write_manifest
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.parallel.routing import Assignment
from bigtrk.training.data.event_source import open_events
from scripts.results import CHECKOUT, Results, add_options
from tests.models.launches import batch_maker, count_step, drawn_graph

SIZES = 1_000, 3_000_000, 6_800_000
HOST_EDGES, READS, OLD = SIZES[1], 12, 10**9
Row = dict[str, Any]


def steps() -> list[Row]:
    """Counts a step at each number of edges."""
    asked = [(n_edges, count_step(n_edges)[1]) for n_edges in SIZES]
    return [
        {"edges": n, "launches": s.launches.total(), "bytes": s.n_bytes, "waits": len(s.waits)}
        for n, s in asked
    ]


def kernels() -> list[Row]:
    """Compiles the kernels of layers of 64 and 128 in a process that does not interpret."""
    cases = [[hidden, 2, True, "bf16", 90] for hidden in (64, 128)]
    command = [sys.executable, "-m", "tests.models.compile_triton", json.dumps(cases)]
    always = {"TRITON_INTERPRET": "0", "TRITON_ALWAYS_COMPILE": "1", "TRITON_DUMP_PTXAS_LOG": "1"}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **always, "TRITON_CACHE_DIR": folder}
        done = subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, stdout=-1)
    return [json.loads(line) for line in done.stdout.splitlines()]


def host() -> Row:
    """Measures the preparation of an event in its file."""
    torch.set_num_threads(1)
    buffers: dict[Any, list[Tensor]] = defaultdict(list)  # which are used again, as pinned ones
    taken: list[Any] = []

    def pinned(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        taken.append((tensor.shape, dtype))
        of_kind, n = buffers[taken[-1]], taken.count(taken[-1])
        of_kind += [torch.empty(tensor.shape, dtype=dtype)] if len(of_kind) < n else []
        return of_kind[n - 1].copy_(tensor)

    seconds = []
    with tempfile.TemporaryDirectory() as name, batch_maker() as maker:
        path = write_graph(Path(name), drawn_graph(HOST_EDGES), {"purity": 0.3})
        os.utime(path, (OLD, OLD))
        write_manifest(Path(name), "graphs", {}, [path.stem])
        events = open_events([Path(name)])
        with patch.object(process, "pinned", pinned):
            for _ in range(READS + 1):
                taken.clear()
                start = time.thread_time()
                maker.make(Assignment(0, (0,), 1, 0), events)
                seconds.append(time.thread_time() - start)
    return {"edges": HOST_EDGES, "first_ms": 1e3 * seconds[0], "ms": 1e3 * median(seconds[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser)
    results = Results("kernels", parser.parse_args())
    counted, compiled, prepared = steps(), kernels(), host()
    wide = [kernel["spilled"] for kernel in compiled if kernel["hidden"] == 128]
    summary = {
        "launches_per_step": max(row["launches"] for row in counted),
        "gigabytes_per_step_ctd_h64": counted[-1]["bytes"] / 1e9,
        "float_atomics": sum(len(kernel["atomics"]) for kernel in compiled),
        "spills_h128": max(wide),
        "host_ms_3m": prepared["ms"],
    }
    results.write(summary, steps=counted, kernels=compiled, host=prepared)


if __name__ == "__main__":
    exit_on_bad_input("kernels.py", main)
