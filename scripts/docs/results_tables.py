"""Tables of the documentation, made from the files of docs/results.

    python scripts/docs/results_tables.py            rewrites them
    python scripts/docs/results_tables.py --check    names those that differ; exit status 1

In README.md and in the pages of docs/ the table NAME stands between two comments, and below it the
commit that it was measured at:

    <!-- results: NAME -->
    <!-- /results -->

and so does a number in running text, as Python writes it by a format (percent signs after a space):

    <!-- result: hot_path/summary/memory_ratio .1f --><!-- /result -->
"""

import argparse
import os
import re
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from bigtrk.console import complain, exit_on_bad_input, say
from bigtrk.disk.files import read_json, write_atomically
from bigtrk.errors import InputError
from scripts.docs.table import Table
from scripts.docs.tables import (
    cost_tables,
    cut_tables,
    event_tables,
    fault_tables,
    parallel_tables,
    stage_tables,
    training_tables,
)
from scripts.results import CHECKOUT, RESULTS

TABLE, NUMBER = (
    re.compile(
        rf"(?s)(?P<begin><!-- {kind}: (?P<what>.*?) -->)(?P<body>.*?)(?P<end><!-- /{kind} -->)"
    )
    for kind in ("results", "result")
)
MARK = re.compile(r"<!-- /?results?\b")
NUMBER_AT_START = re.compile(r"(?m)^\s*<!-- result: ")
# The result file of a table by its name, and the function that makes the table from it.
TABLES: dict[str, tuple[str, Callable[[Any], Table]]] = {
    "acts": ("acts", cost_tables.acts),
    "any_size": ("any_size", cost_tables.any_size),
    "attention": ("attention", cost_tables.attention),
    "builders": ("builders", stage_tables.builders),
    "checkpoint": ("checkpoint", cost_tables.checkpoint),
    "exchange_cost": ("exchange_cost", parallel_tables.exchange_cost),
    "faults": ("faults", fault_tables.faults),
    "gpu": ("gpu", cost_tables.gpu_steps),
    "hot_path": ("hot_path", cost_tables.hot_path),
    "hot_path_sizes": ("hot_path", cost_tables.hot_path_sizes),
    "interop": ("interop", event_tables.interop),
    "large_event": ("large_event", parallel_tables.large_event),
    "large_events": ("large_events", event_tables.large_events),
    "parity_matrix": ("parity_matrix", parallel_tables.parity_matrix),
    "parity_models": ("parity_models", parallel_tables.parity_models),
    "partition_volumes": ("partition_volumes", cut_tables.partition_volumes),
    "physics_heptrkx": ("physics_heptrkx", training_tables.physics_heptrkx),
    "pyg_heptrkx": ("pyg_heptrkx", training_tables.physics_heptrkx),
    "pixels": ("pixels", stage_tables.scoreboard),
    "pixels_fatras": ("pixels_fatras", stage_tables.scoreboard),
    "pipeline_targets": ("pipeline", stage_tables.targets),
    "reconstruct": ("reconstruct", cost_tables.reconstruct),
    "rehearsals": ("rehearsals", parallel_tables.rehearsals),
    "sampling": ("sampling", training_tables.sampling),
    "scaling": ("scaling", parallel_tables.scaling),
    "shadow_epochs": ("shadow_epochs", training_tables.shadow_epochs),
    "scoreboard": ("scoreboard", stage_tables.scoreboard),
    "scoreboard_losses": ("scoreboard", stage_tables.scoreboard_losses),
    "sharding": ("sharding", cost_tables.sharding),
    "sharding_hidden128": ("sharding_hidden128", cost_tables.sharding),
    "soak": ("soak", fault_tables.soak),
    "study_event1000": ("study_event1000", training_tables.study),
    "study_ex3": ("study_ex3", training_tables.study),
    "study_pipeline": ("study_pipeline", training_tables.study),
    "transfer": ("transfer", stage_tables.transfer),
}


def pages(checkout: Path) -> list[Path]:
    """Lists the pages where tables may stand."""
    return [checkout / "README.md", *sorted((checkout / "docs").rglob("*.md"))]


class Page:
    """A page of the documentation: `text` as it is, `filled` as it should be, `differing` names the
    tables and numbers in which the two differ.
    """

    def __init__(self, path: Path, checkout: Path) -> None:
        """Reads a page and fills it; raises InputError if there is no such table, file or number,
        or a comment without its other.
        """
        self.path, self._results = path, checkout / RESULTS
        self.text, self.differing = path.read_text(), list[str]()
        self._check_marks()
        tables = TABLE.sub(self._table, self.text)
        self.filled = NUMBER.sub(self._number, tables)

    def write(self) -> None:
        """Writes the page as it should be."""
        write_atomically(self.path, lambda path: path.write_text(self.filled))

    def _check_marks(self) -> None:
        bodies = [found["body"] for mark in (TABLE, NUMBER) for found in mark.finditer(self.text)]
        problem = ""
        if len(MARK.findall(self.text)) != 2 * len(bodies) or any(map(MARK.search, bodies)):
            problem = "<!-- result(s): ... --> without <!-- /result(s) -->, or the reverse"
        elif NUMBER_AT_START.search(self.text):
            problem = "a number begins a line, which Markdown takes for the end of a paragraph"
        if problem:
            raise InputError(f"{self.path}: {problem}")

    def _table(self, match: re.Match[str]) -> str:
        if match["what"] not in TABLES:
            known = ", ".join(TABLES)
            raise InputError(f"{self.path}: no table {match['what']!r}; known are {known}")
        name, make = TABLES[match["what"]]
        file = self._results / f"{name}.json"
        if not file.exists():
            return self._replaced(match, "\n\nNot yet run.\n\n")
        found = read_json(file)
        link = f"[{RESULTS.name}/{file.name}]({os.path.relpath(file, self.path.parent)})"
        at = found["commit"]
        when = f"at commit {at[:7]}" if at else "with an older bigtrk, commit unknown"
        origin = f"Measured {when}: {link}."
        return self._replaced(match, f"\n\n{make(found).markdown()}\n\n{origin}\n\n")

    def _number(self, match: re.Match[str]) -> str:
        place, _, form = match["what"].rpartition(" ")
        name, *keys = place.split("/")
        found = read_json(self._results / f"{name}.json")
        try:
            text = format(reduce(getitem, keys, found), form).replace("%", " %")
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{self.path}: the results hold no number {place!r}; correct the comment"
            ) from None
        return self._replaced(match, text)

    def _replaced(self, match: re.Match[str], body: str) -> str:
        if match["body"] != body:
            self.differing.append(match["what"])
        return f"{match['begin']}{body}{match['end']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="rewrite nothing")
    check = parser.parse_args().check
    differing = [page for path in pages(CHECKOUT) if (page := Page(path, CHECKOUT)).differing]
    for page in differing:
        for what in page.differing:
            place = page.path.relative_to(CHECKOUT)
            if check:
                complain(f"{place}: {what} is not what its result file says; run this script")
            else:
                say(f"{place}: {what}")
        if not check:
            page.write()
    raise SystemExit(bool(check and differing))


if __name__ == "__main__":
    exit_on_bad_input("results_tables.py", main)
