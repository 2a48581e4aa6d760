"""Full-occupancy events from simulation to tracks: what is found, and what is lost where.

    python scripts/physics/physics_full.py OUT [--event1000 FOLDER] [--output FILE] [--publish]

It simulates events of 10,000 particles, builds graphs, trains the Interaction GNN on particles
above 1 GeV, chooses the score cut on validation events, and evaluates edges and tracks on other
simulated events and on a real one. Work that is done already is kept. Pages with plots go to OUT.
The last line is one JSON object: edge metrics at a score of 0.5, and the tracks of ATLAS matching
in strict mode, by folder of graphs.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.records.evaluation import EvaluationRecord, read_evaluations
from bigtrk.shipped import TRAIN
from bigtrk.training.run_folder import WEIGHTS
from scripts.results import Results, add_options

PARTICLES, TRAIN_EVENTS, TEST_EVENTS = 10_000, 18, 4
SETTINGS = (
    "target.pt_min=1 target.hits_min=3 model.hidden=32 model.layers=6 model.precision=bf16 "
    "training.class_balance=equal training.epochs=32 optimizer.lr=0.003 optimizer.schedule=cosine "
    "optimizer.warmup_steps=50"
)
CUTS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)


def commands(out: Path, real: Path | None) -> list[str]:
    """Lists the commands that make the run, in order."""
    made = [
        f"bigtrk simulate {out}/events --events {TRAIN_EVENTS} --particles {PARTICLES}",
        f"bigtrk simulate {out}/validation_events --events 2 --first-event {TRAIN_EVENTS} "
        f"--particles {PARTICLES}",
        f"bigtrk simulate {out}/test_events --events {TEST_EVENTS} "
        f"--first-event {TRAIN_EVENTS + 2} --particles {PARTICLES}",
        *(f"bigtrk build {out}/{x}events {out}/{x}graphs" for x in ("", "validation_", "test_")),
    ]
    if real:
        made.append(f"bigtrk build {real} {out}/real_graphs")
    if not (out / "run" / WEIGHTS).exists():
        shutil.rmtree(out / "run", ignore_errors=True)
        made.append(
            f"python {TRAIN} data.train=[{out}/graphs] data.validation=[{out}/validation_graphs] "
            f"{SETTINGS} run.folder={out}/run"
        )
    return made


def best_cut(out: Path) -> float:
    """Returns the score cut with the highest efficiency x (1 - fake rate) on validation events.

    A model trained with `class_balance=equal` scores as if true edges were as many as false ones.
    """
    return max(CUTS, key=lambda cut: _merit(evaluated(out, "validation_graphs", cut)))


def _merit(evaluation: dict[str, Any]) -> float:
    row = _matching(evaluation)
    return float(row["efficiency"] * (1 - row["fake_rate"]))


def _matching(evaluation: dict[str, Any]) -> dict[str, Any]:
    rows = evaluation["tracks"]["matching"]
    return next(row for row in rows if (row["style"], row["mode"]) == ("ATLAS", "strict"))


def summary(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Makes the last line."""
    return {
        name: {
            **{key: one["edge_metrics"][key] for key in ("efficiency", "purity", "auc")},
            "track_efficiency": _matching(one)["efficiency"],
            "fake_rate": _matching(one)["fake_rate"],
        }
        for name, one in found.items()
    }


def evaluated(out: Path, graphs: str, cut: float) -> dict[str, Any]:
    """Returns the evaluation on a folder of graphs; also writes a page with its plots."""
    options = f"--tracks --score-cut {cut} --html {out}/{graphs}.html"
    _run(f"bigtrk evaluate {out}/run {out}/{graphs} {options}")
    newest = max(read_evaluations(EvaluationRecord, out / "run"), key=lambda record: record.made)
    return {**newest.model_dump(mode="json"), "data": graphs}


def _run(command: str) -> None:
    console.rule(style="dim")
    say(f"$ {command}", style="bold")
    program, *arguments = shlex.split(command)
    subprocess.run([str(Path(sys.executable).parent / program), *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--event1000", type=Path, help="folder of a real event")
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("physics_full", arguments)
    for command in commands(arguments.out, arguments.event1000):
        _run(command)
    names = ["test_graphs", *(["real_graphs"] if arguments.event1000 else [])]
    cut = best_cut(arguments.out)
    found = {name: evaluated(arguments.out, name, cut) for name in names}
    say(f"plots in {arguments.out}/*_graphs.html")
    results.write(summary(found), score_cut=cut, evaluations=found, settings=SETTINGS)


if __name__ == "__main__":
    exit_on_bad_input("physics_full.py", main)
