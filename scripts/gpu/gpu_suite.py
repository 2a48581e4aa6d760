"""Runs all that wants a GPU, part by part, and writes docs/results/gpu.json.

    python scripts/gpu/gpu_suite.py [--work FOLDER] [--parts NAME...] [--output FILE] [--publish]
    python scripts/gpu/gpu_suite.py --dry-run

One command for a machine with a card, on which nothing else is to be made. Each part is a process
of its own that takes less than 10 minutes; what it found is kept in FOLDER, and a suite that is
started again at the same commit goes on with the parts that are not there. The parts: steps at
hidden 64 and 128 on event 1000's 3.0 M edges and at CTD size (6.8 M), trainings repeated bit by
bit, the tests, steps of PyG's network, ShaDow sampling and radius search on the device, ZeRO-3 with
its state on the host, PyG's network compiled. Times are medians, by the device's clock.

Without a card nothing is measured or written: --dry-run walks through every part on a CPU, in small
sizes and with Triton's interpreter. The last line is one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
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
from scripts.gpu.gpu_parts import programs, searches, steps
from scripts.gpu.gpu_parts.extent import CTD, EVENT_1000, Extent, Row
from scripts.results import CHECKOUT, Results, add_options, read_tree

SECONDS = 600
WORK = CHECKOUT / "runs/gpu_suite"  # which git ignores
PARTS: dict[str, Callable[[Extent], Row]] = {
    "steps_event1000": partial(steps.steps, EVENT_1000, steps.OURS),
    "steps_ctd": partial(steps.steps, CTD, steps.OURS),
    "bits": steps.repeated,
    "tests": programs.tests,
    "plain_event1000": partial(steps.steps, EVENT_1000, steps.PLAIN),
    "sampling": searches.sampling,
    "radius": searches.radius,
    "offload": programs.offload,
    "plain_ctd": partial(steps.steps, CTD, steps.PLAIN),
    "compiled_event1000": partial(steps.steps, EVENT_1000, steps.COMPILED),
    "compiled_ctd": partial(steps.steps, CTD, steps.COMPILED),
}
PLAIN, OURS = "PyG fp32", "bigtrk bf16"


def run_parts(names: list[str], extent: Extent) -> dict[str, Row]:
    """Runs the parts that have not been run at this commit, and returns what all found that were;
    raises InputError if a part failed, or took longer than 10 minutes.
    """
    commit = read_tree(CHECKOUT).commit
    found: dict[str, Row] = {}
    for name in PARTS:
        kept = extent.work / f"{name}.json"
        known = read_json(kept) if kept.exists() else {}
        if (known.get("commit"), known.get("dry")) != (commit, extent.dry):
            if name not in names:
                continue
            say(f"part {name}")
            known = {"commit": commit, "dry": extent.dry, "found": run_apart(name, extent)}
            write_json(kept, known)
        found[name] = known["found"]
    return found


def run_apart(name: str, extent: Extent) -> Row:
    """Runs a part in a process of its own; raises InputError if it failed, or took longer than 10
    minutes.
    """
    output = extent.work / f"{name}.part.json"
    command = [sys.executable, "-m", "scripts.gpu.gpu_suite", "--part", name]
    command += ["--work", str(extent.work), "--output", str(output)]
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # products of one order
    if extent.dry:
        command.append("--dry-run")
        environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        subprocess.run(command, cwd=CHECKOUT, env=environment, check=True, timeout=SECONDS)
    except subprocess.CalledProcessError:
        raise InputError(
            f"part {name} failed; what came before it is kept in {extent.work}, from where this "
            f"goes on with --work {extent.work}"
        ) from None
    except subprocess.TimeoutExpired:
        raise InputError(
            f"part {name} took longer than {SECONDS // 60} minutes; what came before it is kept in "
            f"{extent.work}, from where this goes on with --work {extent.work}"
        ) from None
    found: Row = read_json(output)
    output.unlink()
    return found


def summary(found: dict[str, Row]) -> dict[str, float | None]:
    """Makes the last line: None for parts that were not run."""
    large, event, beside = (
        found.get(name) for name in ("steps_ctd", "steps_event1000", "plain_event1000")
    )

    def figure(part: Row | None, hidden: int, key: str, side: str = OURS) -> float | None:
        rows = steps.found_at(part, side, hidden) if part else iter(())
        return next((row[key] for row in rows if row.get(key) is not None), None)

    def ratio(hidden: int, key: str) -> float | None:
        plain, ours = figure(beside, hidden, key, PLAIN), figure(event, hidden, key)
        return plain / ours if plain and ours else None

    repeats = found["bits"]["rows"] if "bits" in found else []
    return {
        "tests_passed": found["tests"]["passed"] if "tests" in found else None,
        "same_bits": all(row["same_bits"] for row in repeats) if repeats else None,
        **{f"ctd_step_seconds_h{h}": figure(large, h, "seconds") for h in (64, 128)},
        **{f"ctd_mfu_h{h}": figure(large, h, "mfu") for h in (64, 128)},
        **{f"ctd_bandwidth_h{h}": figure(large, h, "bandwidth") for h in (64, 128)},
        **{f"time_ratio_h{h}": ratio(h, "seconds") for h in (64, 128)},
        **{f"memory_ratio_h{h}": ratio(h, "peak_bytes") for h in (64, 128)},
    }


def arguments_of(line: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, help=f"kept; {WORK.relative_to(CHECKOUT)} by default")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument("--dry-run", action="store_true", help="walk through the parts on a CPU")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    add_options(parser)
    arguments = parser.parse_args(line)
    if arguments.dry_run and (arguments.publish or (arguments.output and not arguments.part)):
        parser.error("--dry-run writes no result file: leave out --publish and --output")
    return arguments


def has_card() -> bool:
    return torch.cuda.is_available()


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


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
        return
    results = Results("gpu", arguments)
    if not has_card():
        raise InputError(
            "torch sees no GPU here, and nothing is measured without one; --dry-run walks through "
            "the parts on a CPU"
        )
    found = run_parts(arguments.parts, Extent(False, made(arguments.work or WORK)))
    sheet = DATA_SHEETS.get(accelerator())
    facts = {"triton": version("triton"), "data_sheet": sheet and asdict(sheet)}
    results.write(summary(found), **facts, **found)
    if "tests" in found and not found["tests"]["passed"]:
        complain("tests of GPUs failed")
        raise SystemExit(1)


if __name__ == "__main__":
    exit_on_bad_input("gpu_suite.py", main)
