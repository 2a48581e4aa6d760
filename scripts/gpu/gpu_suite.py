"""Runs all that wants a GPU, part by part, and writes docs/results/gpu.json.

    python scripts/gpu/gpu_suite.py [--work FOLDER] [--parts NAME...] [--output FILE] [--publish]
    python scripts/gpu/gpu_suite.py --dry-run

One command for a machine with a card. Each of PARTS is a process of its own, whose findings are
kept in FOLDER. After 10 minutes the suite ends, and the next call at the same commit goes on.
Graphs are kept, too, and may be brought along from a machine without a card, where `--graphs` makes
them. Times are medians, by the device's clock.

Without a card nothing is measured or written: --dry-run walks through every part on a CPU, in small
sizes and with Triton's interpreter. The last line is one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from bigtrk.console import complain, exit_on_bad_input, say
from bigtrk.cost.machines import DATA_SHEETS
from bigtrk.disk.files import read_json, write_json
from bigtrk.errors import InputError
from bigtrk.machine import accelerator, version
from scripts.gpu.gpu_parts import programs, samples, steps
from scripts.gpu.gpu_parts.extent import CTD, EVENT_1000, MADE, SMALL, WIDTHS, Extent, Row
from scripts.results import CHECKOUT, Results, Summary, add_options, read_tree

SECONDS, DRY = 570, 3600  # of a call, since machines are lent for 10 minutes; of a dry run
WORK = CHECKOUT / "runs/gpu_suite"  # which git ignores
against = partial(steps.steps, steps.COMPILED, steps.TURNS)
# What a card is to decide comes first.
PARTS: dict[str, Callable[[Extent], Row]] = {
    "steps_event1000": partial(steps.steps, steps.OURS, 1, WIDTHS, EVENT_1000),
    "compiled_small": lambda extent: {name: against(WIDTHS[:1], name, extent) for name in SMALL},
    "compiled_event1000": partial(against, WIDTHS, EVENT_1000),
    "training": programs.training,
    "mini_batches": steps.mini_batches,
    "steps_ctd": partial(steps.steps, steps.OURS, 1, WIDTHS, CTD),
    "compiled_ctd": partial(against, WIDTHS[:1], CTD),
    "bits": steps.repeated,
    "tests": partial(programs.tests, programs.QUICK),
    "slow_tests": partial(programs.tests, programs.SLOW),
    "plain_event1000": partial(steps.steps, steps.PLAIN, 1, WIDTHS, EVENT_1000),
    "plain_ctd": partial(steps.steps, steps.PLAIN, 1, WIDTHS[:1], CTD),
    "sampling": samples.sampling,
    "offload": programs.offload,
}
TESTS = "tests", "slow_tests"
PLAIN, OURS = "PyG fp32", "bigtrk bf16"


def run_parts(names: list[str], extent: Extent) -> dict[str, Row]:
    """Runs the parts that have not been run at this commit while there is time, and returns what
    all found that were.
    """
    commit, end = read_tree(CHECKOUT).commit, time.monotonic() + (DRY if extent.dry else SECONDS)
    found: dict[str, Row] = {}
    for name in PARTS:
        kept = extent.work / f"{name}.json"
        known = read_json(kept) if kept.exists() else {}
        if (known.get("commit"), known.get("dry")) != (commit, extent.dry):
            if name not in names:
                continue
            fresh = run_apart(name, extent, end - time.monotonic())
            if fresh is None:
                continue
            known = {"commit": commit, "dry": extent.dry, "found": fresh}
            write_json(kept, known)
        found[name] = known["found"]
    return found


def run_apart(name: str, extent: Extent, seconds: float) -> Row | None:
    """Runs a part in a process of its own; None if it failed, or took longer than `seconds`."""
    say(f"part {name}")
    output = extent.work / f"{name}.part.json"
    command = [sys.executable, "-m", "scripts.gpu.gpu_suite", "--part", name]
    command += ["--work", str(extent.work), "--output", str(output)]
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # products of one order
    if extent.dry:
        command.append("--dry-run")
        environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, timeout=seconds)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        timed_out = isinstance(error, subprocess.TimeoutExpired)
        complain(f"part {name} {'took longer than was left' if timed_out else 'failed'}")
        return None
    found: Row = read_json(output)
    output.unlink()
    return found


def summary(found: dict[str, Row]) -> Summary:
    """Makes the last line: None for parts that were not run."""

    def figure(name: str, hidden: int, key: str, side: str = OURS) -> float | None:
        rows = found[name]["rows"] if name in found else []
        return next((r.get(key) for r in rows if (r["side"], r["hidden"]) == (side, hidden)), None)

    def ratio(hidden: int, key: str) -> float | None:
        plain = figure("plain_event1000", hidden, key, PLAIN)
        ours = figure("steps_event1000", hidden, key)
        return plain / ours if plain and ours else None

    repeats = found["bits"]["rows"] if "bits" in found else []
    tests = [found[name]["passed"] for name in TESTS if name in found]
    return {
        "tests_passed": all(tests) if len(tests) == len(TESTS) else None,
        "same_bits": all(row["same_bits"] for row in repeats) if repeats else None,
        **{f"ctd_step_seconds_h{h}": figure("steps_ctd", h, "seconds") for h in WIDTHS},
        **{f"ctd_mfu_h{h}": figure("steps_ctd", h, "mfu") for h in WIDTHS},
        **{f"ctd_bandwidth_h{h}": figure("steps_ctd", h, "bandwidth") for h in WIDTHS},
        **{f"time_ratio_h{h}": ratio(h, "seconds") for h in WIDTHS},
        **{f"memory_ratio_h{h}": ratio(h, "peak_bytes") for h in WIDTHS},
        "against_compiled": against_compiled(found),
        **{f"training_{key}": found.get("training", {}).get(key) for key in programs.FIGURES},
    }


def against_compiled(found: dict[str, Row]) -> dict[str, float | None]:
    """Returns how many times our time PyG's compiled network takes, by graph and width."""
    large = (found[name] for name in ("compiled_event1000", "compiled_ctd") if name in found)
    ratios = {}
    for part in (*found.get("compiled_small", {}).values(), *large):
        for ours, compiled in zip(part["rows"][::2], part["rows"][1::2], strict=True):
            both = ours["seconds"] and compiled["seconds"]
            place = f"{part['graph'].replace(' ', '')}_h{ours['hidden']}"
            ratios[place] = compiled["seconds"] / ours["seconds"] if both else None
    return ratios


def arguments_of(line: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, help=f"kept; {WORK.relative_to(CHECKOUT)} by default")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument("--dry-run", action="store_true", help="walk through the parts on a CPU")
    parser.add_argument("--graphs", action="store_true", help="make graphs, which needs no card")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    add_options(parser)
    arguments = parser.parse_args(line)
    if arguments.dry_run and (arguments.publish or (arguments.output and not arguments.part)):
        parser.error("--dry-run writes no result file: leave out --publish and --output")
    return arguments


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def refuse_missing(names: list[str], found: dict[str, Row]) -> None:
    """Raises InputError if parts that were asked for were not run."""
    if missing := [name for name in names if name not in found]:
        raise InputError(
            f"not run: {', '.join(missing)}; the same command goes on with these parts"
        )


def main() -> None:
    """Runs one part, or all of them in turn, writes and prints."""
    arguments = arguments_of(sys.argv[1:])
    if arguments.part:
        extent = Extent(arguments.dry_run, arguments.work)
        write_json(arguments.output, PARTS[arguments.part](extent))
        return
    if arguments.dry_run:
        with tempfile.TemporaryDirectory(prefix="bigtrk-gpu-") as folder:
            found = run_parts(arguments.parts, Extent(True, made(arguments.work or Path(folder))))
        print(json.dumps({"walked": list(found)}), flush=True)
        refuse_missing(arguments.parts, found)
        return
    if arguments.graphs:
        work = Extent(False, made(arguments.work or WORK))
        print(json.dumps({name: work.graph(name).n_nodes for name in MADE}), flush=True)
        return
    results = Results("gpu", arguments)
    if not torch.cuda.is_available():
        raise InputError(
            "torch sees no GPU here, and nothing is measured without one; --dry-run walks through "
            "the parts on a CPU"
        )
    found = run_parts(arguments.parts, Extent(False, made(arguments.work or WORK)))
    sheet = DATA_SHEETS.get(accelerator())
    facts = {"triton": version("triton"), "data_sheet": sheet and asdict(sheet)}
    results.write(summary(found), **facts, **found)
    if not all(found[name]["passed"] for name in TESTS if name in found):
        complain("tests of GPUs failed")
        raise SystemExit(1)
    refuse_missing(arguments.parts, found)


if __name__ == "__main__":
    exit_on_bad_input("gpu_suite.py", main)
