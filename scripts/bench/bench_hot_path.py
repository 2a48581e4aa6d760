"""Time and memory of a training step: the plain Interaction GNN and bigtrk at each setting.

    python scripts/bench/bench_hot_path.py [--output FILE] [--quick | --publish]

Sides alternate, each in a process that has done nothing else but a warm-up, with equal threads and
allocator settings: bigtrk's (parallel/ranks.py), and with all freed memory kept, which is fastest
where the system gives memory slowly. Memory is the peak above what the process held before its
first step; `kept` what the process holds between forward and backward; the error that of the logits
against the reference in float64, relative to their spread. The last line is one JSON object with
the ratios of the reference to bigtrk at 300,000 edges, hidden 64, 8 layers, bigtrk's allocator
settings; the file has those of the other settings too.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.console import exit_on_bad_input, follow, say
from bigtrk.formats.acorn.model_files import load_acorn_weights
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.parallel.ranks import configure_process, discover
from scripts.results import Results, add_options
from tests.oracle.interaction_gnn import ReferenceGNN

F, G = 4, 6
# Nodes and edges.
SIZES = {
    "Ex3": (13_000, 47_800),
    "300 K": (30_000, 300_000),
    "1 M": (100_000, 1_000_000),
    "event 1000": (103_783, 335_587),  # as `bigtrk build` makes it
    "event 1000, 0.3 GeV": (103_783, 3_000_000),  # with --learn-windows --pt-min 0.3
    "CTD": (330_700, 6_900_000),
}
SIDES = {
    "reference": ("reference", "fp32"),
    **{
        f"{recompute} {precision}": (recompute, precision)
        for recompute in ("none", "layer", "chunk")
        for precision in ("fp32", "bf16")
    },
}
CHUNKED = ("chunk fp32", "chunk bf16")
# These would not fit 24 GB, counted from the smaller sizes, or take minutes.
SKIPPED = {
    "1 M": ("reference",),
    "event 1000": tuple(side for side in SIDES if side not in ("reference", *CHUNKED)),
    "event 1000, 0.3 GeV": tuple(side for side in SIDES if side not in CHUNKED),
    "CTD": tuple(side for side in SIDES if side != "chunk bf16"),
}
KEEP_FREED = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "16000000000",
    "THP_MEM_ALLOC_ENABLE": "0",
}


@dataclass(frozen=True)
class Case:
    """A side on a graph. infer: score the edges only. keep_freed: nothing goes to the system."""

    side: str
    size: str
    hidden: int = 64
    layers: int = 8
    steps: int = 1
    infer: bool = False
    keep_freed: bool = False


def graph(n_nodes: int, n_edges: int) -> tuple[Tensor, Tensor, Tensor]:
    """Makes edges in destination order between rows near each other, as in detector layers."""
    generator = torch.Generator().manual_seed(0)
    destination = torch.randint(n_nodes, (n_edges,), generator=generator).sort().values
    back = torch.randint(1, n_nodes // 10, (n_edges,), generator=generator)
    edge_index = torch.stack([(destination - back).clamp(min=0), destination])
    x = torch.randn(n_nodes, F, generator=generator)
    return x, torch.randn(n_edges, G, generator=generator), edge_index


def models(case: Case) -> tuple[nn.Module, ReferenceGNN]:
    """Makes the side's model and the reference, with the same weights."""
    recompute, precision = SIDES[case.side]
    torch.manual_seed(0)
    sizes = {"hidden": case.hidden, "layers": case.layers}
    reference = ReferenceGNN(InteractionGNNConfig.model_validate(sizes), F, G)
    if recompute == "reference":
        return reference, reference
    options = {**sizes, "recompute": recompute, "precision": precision}
    own = InteractionGNN(InteractionGNNConfig.model_validate(options), F, G)
    load_acorn_weights(own, reference.state_dict())
    return own, reference


def logits_of(model: nn.Module, inputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    if isinstance(model, ReferenceGNN):
        return model(*inputs)  # type: ignore[no-any-return]
    return model(*inputs, len(inputs[0]), no_exchange)  # type: ignore[no-any-return]


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(case: Case) -> dict[str, Any]:
    """Measures seconds of the median step, and bytes above what was held before the first."""
    model, _ = models(case)
    inputs, labels = graph(*SIZES[case.size]), torch.zeros(SIZES[case.size][1])
    logits_of(model, _few(inputs))
    base, seconds = peak(), []
    for _ in range(case.steps + 1):
        start = time.perf_counter()
        if case.infer:
            with torch.no_grad():
                logits_of(model, inputs)
        else:
            logits = logits_of(model, inputs)
            binary_cross_entropy_with_logits(logits, labels).backward()
            model.zero_grad()
        seconds.append(time.perf_counter() - start)
    return {
        **asdict(case),
        "seconds": median(seconds[1:]) if case.steps else seconds[0],
        "bytes": peak() - base,
    }


def _few(inputs: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the first edges: a pass over them loads and compiles what is needed."""
    x, edge_features, edge_index = inputs
    return x, edge_features[:1000], edge_index[:, :1000]


def kept(case: Case) -> int:
    """Measures the bytes that a model holds between forward and backward, logits and all."""
    model, _ = models(case)
    inputs = graph(*SIZES[case.size])
    logits_of(model, _few(inputs))
    before = resident()
    logits = logits_of(model, inputs)
    assert logits.requires_grad
    return resident() - before


def resident() -> int:
    """Returns the bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def error(case: Case) -> float:
    """Returns the logits' largest error against the reference in float64, over their spread."""
    model, reference = models(case)
    inputs = graph(*SIZES[case.size])
    with torch.no_grad():
        found = logits_of(model, inputs).double()
        x, edge_features, edge_index = inputs
        exact = reference.double()(x.double(), edge_features.double(), edge_index)
    return float((found - exact).abs().max() / exact.std())


def apart(case: Case, what: str = "measure") -> Any:
    """Returns `what` of a case in a process of its own; None where memory ran out."""
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case)), "--what", what]
    environment = {**os.environ, **(KEEP_FREED if case.keep_freed else {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        say(f"{case}: {(done.stderr.strip().splitlines() or ['killed'])[-1]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def cases_of(sizes: list[str], sides: list[str]) -> list[Case]:
    """Lists the cases of training, and of inference on the largest size."""
    training = [
        Case(side, size) for size in sizes for side in sides if side not in SKIPPED.get(size, ())
    ]
    return [*training, Case("chunk bf16", sizes[-1], infer=True)]


def timed(cases: list[Case], rounds: int) -> list[dict[str, Any]]:
    """Returns medians over rounds, where all cases take their turn; large ones in one only."""
    large = [case for case in cases if SIZES[case.size][1] >= 1_000_000]
    small = [case for case in cases if case not in large]
    turns = [*(case for _ in range(rounds) for case in small), *large]
    found = [(case, apart(case)) for case in follow(turns, len(turns), "cases")]
    rows = []
    for case in cases:
        own = [result for other, result in found if other == case and result]
        if own:
            seconds, n_bytes = (median(r[k] for r in own) for k in ("seconds", "bytes"))
            size = dict(zip(("nodes", "edges"), SIZES[case.size], strict=True))
            figures = {"seconds": seconds, "bytes": n_bytes, "rounds": len(own)}
            rows.append({**asdict(case), **size, **figures})
    return rows


def summary(rows: list[dict[str, Any]], kept_h128: int, keep_freed: bool) -> dict[str, float]:
    """Makes the last line: reference / bigtrk at 300 K edges."""
    at = {
        row["side"]: row
        for row in rows
        if row["size"] == "300 K" and row["keep_freed"] == keep_freed and not row["infer"]
    }
    reference = at["reference"]
    return {
        "memory_ratio": reference["bytes"] / at["chunk bf16"]["bytes"],
        "time_ratio_bf16_chunk": reference["seconds"] / at["chunk bf16"]["seconds"],
        "time_ratio_bf16": reference["seconds"] / at["none bf16"]["seconds"],
        "time_ratio_fp32": reference["seconds"] / at["none fp32"]["seconds"],
        "bytes_per_edge_layer_h128": kept_h128 / SIZES["300 K"][1] / 8,
        "recompute_cost": at["chunk bf16"]["seconds"] / at["none bf16"]["seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser, quick="Ex3 and 300 K edges, one round, under 5 minutes")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--what", default="measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        configure_process(discover({}))
        call = {"measure": measure, "kept": kept, "error": error}[arguments.what]
        print(json.dumps(call(Case(**json.loads(arguments.case)))))
        return
    results = Results("hot_path", arguments)
    if arguments.quick:
        cases = cases_of(["Ex3", "300 K"], [side for side in SIDES if "layer" not in side])
    else:
        cases = cases_of(list(SIZES), list(SIDES))
        cases += [replace(c, keep_freed=True) for c in cases if c.size == "300 K"]
    rows = timed(cases, rounds=1 if arguments.quick else 3)
    kept_h128 = apart(Case("chunk bf16", "300 K", hidden=128), "kept")
    found = summary(rows, kept_h128, keep_freed=False)
    errors = {side: apart(Case(side, "Ex3"), "error") for side in SIDES}
    facts: dict[str, Any] = {"errors": errors}
    if not arguments.quick:
        facts["summary_keeping_freed_memory"] = summary(rows, kept_h128, keep_freed=True)
    for side, value in errors.items():
        say(f"error of the logits, {side}: {value:.1e}")
    results.write(found, rows=rows, **facts)


if __name__ == "__main__":
    exit_on_bad_input("bench_hot_path.py", main)
