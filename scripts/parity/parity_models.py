"""Networks of PyG's layers, each on ranks against stock layers on whole graphs in float64.

    python scripts/parity/parity_models.py [--engines DDP ZeRO-3] [--output FILE] [--publish]

Each layer in both flows, under each engine, on 2, 3 and 4 ranks, on whole and cut events at once.
Cases that are done already are kept in runs/parity_models.jsonl, and taken from there while the
checkout is at the same commit and clean. Progress goes to standard error, a table to standard
output; the last line is one JSON object with `models`, `cases`, `failed`, `worst_fp64` and
`worst_fp32` (largest difference of logits, gradients or weights after five SGD steps, over the
largest value of all). Exit status 1 where a case fails.
"""

import argparse
import json
import os
from collections.abc import Sequence
from typing import Any

from rich.markdown import Markdown

from bigtrk.console import Screen, exit_on_bad_input
from bigtrk.disk.files import open_to_append
from bigtrk.disk.json_lines import read_lines
from scripts.docs.tables.parallel_tables import parity_models
from scripts.parity.parity_matrix import run
from scripts.results import CHECKOUT, Results, add_options, read_tree
from tests.distributed.pyg_matrix import PRECISION, PyGTrial, all_pyg_trials, run_pyg_trials

KEPT = CHECKOUT / "runs" / "parity_models.jsonl"


class Kept:
    """The cases that were done at the commit of a clean checkout; none of another."""

    def __init__(self) -> None:
        tree = read_tree(CHECKOUT)
        self._commit = tree.commit if tree.clean else None
        lines = read_lines(KEPT) if KEPT.exists() else ()
        rows = (line.content for line in lines)
        self.rows = [row["case"] for row in rows if self._commit and row["commit"] == self._commit]

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Keeps cases more, on disk if the checkout is clean."""
        self.rows.extend(rows)
        if self._commit:
            KEPT.parent.mkdir(exist_ok=True)
            with open_to_append(KEPT) as file:
                for row in rows:
                    print(json.dumps({"commit": self._commit, "case": row}), file=file)


def key(row: dict[str, Any]) -> tuple[str, str, str, int]:
    """Names a case by its network, flow, engine and number of ranks."""
    return " ".join(row["layers"]), row["flow"], row["engine"], row["sectors"]


def missing(trials: Sequence[PyGTrial], rows: Sequence[dict[str, Any]]) -> list[PyGTrial]:
    """Lists the trials of which there is no case yet."""
    done = {key(row) for row in rows}
    return [one for one in trials if key(vars(one)) not in done]


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float | int]:
    """Makes the last line."""
    worst = {
        f"worst_{precision}": max(
            (
                max(row["logits"], row["gradients"], row["weights"])
                for row in rows
                if row["precision"] == precision
            ),
            default=0.0,
        )
        for precision in ("fp64", "fp32")
    }
    return {
        "models": len({" ".join(row["layers"]) for row in rows}),
        "cases": len(rows),
        "failed": sum(not row["passed"] for row in rows),
        **worst,
    }


def main() -> None:
    """Runs what is not done, prints the table, writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engines", nargs="+", choices=list(PRECISION), default=list(PRECISION))
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("parity_models", arguments)
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    wanted, kept = [t for t in all_pyg_trials() if t.engine in arguments.engines], Kept()
    for cases in run(missing(wanted, kept.rows), run_pyg_trials):
        kept.add([case.row() for case in cases])
    names = {key(vars(one)) for one in wanted}
    rows = sorted((row for row in kept.rows if key(row) in names), key=key)
    found = summary(rows)
    Screen(width=150).print(Markdown(parity_models({"rows": rows}).markdown()))
    results.write(found, rows=rows)
    raise SystemExit(bool(found["failed"]))


if __name__ == "__main__":
    exit_on_bad_input("parity_models.py", main)
