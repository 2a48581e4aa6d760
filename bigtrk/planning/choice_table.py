"""The table of `bigtrk plan --choose`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from bigtrk.console import say
from bigtrk.planning.tables import unsteady
from bigtrk.reports import figures
from bigtrk.reports.document import Table
from bigtrk.reports.terminal import at_width, show_header, show_table

Row = Mapping[str, Any]
RULE = (
    "Of each candidate the sectors in which it is fastest, or takes least memory if it does not "
    "fit. Memory: peak of one rank. s: a step."
)


def show_choice(answer: Row, console: Console) -> None:
    """Prints an answer, in the form of `make_choice`."""
    out = at_width(console)
    show_header("Choice", _facts(answer), out)
    show_table(_candidates(answer), out)
    if answer["trials"]:
        show_table(_trials(answer), out)
    for command in answer["commands"]:
        say(command)


def _facts(answer: Row) -> dict[str, str]:
    largest, chosen = answer["events"]["largest"], answer["choice"]
    return {
        "machine": answer["machine"] if answer["calibrated"] else f"{answer['machine']}, assumed",
        **unsteady(answer),
        "model": figures.settings(answer["model"]),
        "events": f"{answer['events']['number']}, the largest with "
        f"{figures.count(largest['nodes'])} nodes and {figures.count(largest['edges'])} edges",
        "memory": f"{figures.memory(answer['memory_bytes'])} of each of {answer['ranks']} rank(s), "
        f"of which {figures.memory(answer['budget_bytes'])} may be filled",
        "choice": f"{_settings(chosen)}, {_cut(chosen)}",
        "predicted": f"{figures.memory(chosen['memory'])}, {figures.seconds(chosen['seconds'])} s "
        f"a step",
    }


def _candidates(answer: Row) -> Table:
    columns = ("settings", "fits", "sectors", "on a rank", "memory", "s")
    best = _best(answer["candidates"])
    rows = [
        (
            _settings(row),
            "chosen" if row == answer["choice"] else "yes" if row["fits"] else "no",
            str(row["parts"]),
            str(row["sectors_per_rank"]),
            figures.memory(row["memory"]),
            figures.seconds(row["seconds"]),
        )
        for row in best
    ]
    return Table("Candidates", columns, tuple(rows), (RULE,), text_columns=2)


def _trials(answer: Row) -> Table:
    columns = ("tried", "sectors", "memory", "s", "predicted s")
    rows = [
        (
            _settings(row),
            str(row["parts"]),
            "failed" if row["peak"] is None else figures.memory(row["peak"]),
            "" if row["took"] is None else figures.seconds(row["took"]),
            figures.seconds(row["seconds"]),
        )
        for row in answer["trials"]
    ]
    return Table("Trials", columns, tuple(rows), (), text_columns=1)


def _best(candidates: Sequence[Row]) -> list[Row]:
    """Returns one row for each candidate's settings, in their order."""
    best: dict[str, Row] = {}
    for row in candidates:
        known = best.get(_settings(row))
        if known is None or _rank(row) < _rank(known):
            best[_settings(row)] = row
    return list(best.values())


def _rank(row: Row) -> tuple[bool, float]:
    return not row["fits"], row["seconds"] if row["fits"] else row["memory"]


def _settings(row: Row) -> str:
    return " ".join(f"{key}={value}" for key, value in row["settings"].items()) or "as configured"


def _cut(row: Row) -> str:
    return "whole events" if row["parts"] == 1 else f"events in up to {row['parts']} sectors"
