"""Full-occupancy events from simulation to tracks: what is found, and what is lost where.

    python scripts/physics/physics_full.py OUT [--event1000 FOLDER]

Simulates events of 10,000 particles, builds graphs, trains the Interaction GNN on particles above
1 GeV, chooses the score cut on validation events, and evaluates edges and tracks on other simulated
events and on a real one. What is done
already is kept. Evaluations go to docs/results/physics_full.json, pages with plots to OUT.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import bigtrk
from bigtrk.console import console, say
from bigtrk.disk.files import read_json, write_json
from bigtrk.machine import machine, software
from bigtrk.training.run_folder import WEIGHTS

PARTICLES, TRAIN_EVENTS, TEST_EVENTS = 10_000, 18, 4
SETTINGS = (
    "target.pt_min=1 target.hits_min=3 model.hidden=32 model.layers=6 model.precision=bf16 "
    "training.class_balance=equal training.epochs=32 optimizer.lr=0.003 optimizer.schedule=cosine "
    "optimizer.warmup_steps=50"
)
CUTS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
DEFAULT = Path(__file__).parents[2] / "docs" / "results" / "physics_full.json"


def commands(out: Path, real: Path | None) -> list[str]:
    """What makes the run, in order."""
    train = Path(bigtrk.__file__).parent / "train.py"
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
            f"python {train} data.train=[{out}/graphs] data.validation=[{out}/validation_graphs] "
            f"{SETTINGS} run.folder={out}/run"
        )
    return made


def best_cut(out: Path) -> float:
    """The score cut with the highest efficiency x (1 - fake rate) on the validation events.

    A model trained with `class_balance=equal` scores as if true edges were as many as false ones.
    """
    return max(CUTS, key=lambda cut: _merit(evaluated(out, "validation_graphs", cut)))


def _merit(evaluation: dict[str, Any]) -> float:
    rows = evaluation["tracks"]["matching"]
    row = next(row for row in rows if (row["style"], row["mode"]) == ("ATLAS", "strict"))
    return float(row["efficiency"] * (1 - row["fake_rate"]))


def evaluated(out: Path, graphs: str, cut: float) -> dict[str, Any]:
    """The evaluation on a folder of graphs; also a page with its plots."""
    options = f"--tracks --score-cut {cut} --html {out}/{graphs}.html"
    _run(f"bigtrk evaluate {out}/run {out}/{graphs} {options}")
    found: dict[str, Any] = read_json(out / "run" / "evaluation.json")
    return {**found, "data": graphs}


def _run(command: str) -> None:
    console.rule(style="dim")
    say(f"$ {command}", style="bold")
    program, *arguments = shlex.split(command)
    subprocess.run([str(Path(sys.executable).parent / program), *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--event1000", type=Path, help="folder of a real event")
    parser.add_argument("--output", type=Path, default=DEFAULT)
    arguments = parser.parse_args()
    for command in commands(arguments.out, arguments.event1000):
        _run(command)
    names = ["test_graphs", *(["real_graphs"] if arguments.event1000 else [])]
    cut = best_cut(arguments.out)
    found = {name: evaluated(arguments.out, name, cut) for name in names}
    facts = {"settings": SETTINGS, "machine": machine(), "software": software()}
    write_json(arguments.output, {"score_cut": cut, "evaluations": found, **facts})
    say(f"written to {arguments.output}; plots in {arguments.out}/*_graphs.html")
    print(json.dumps({name: each["edge_metrics"] for name, each in found.items()}))


if __name__ == "__main__":
    main()
