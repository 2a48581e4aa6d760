"""The tables of `bigtrk plan`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from bigtrk.console import say
from bigtrk.errors import number_of
from bigtrk.reports import figures
from bigtrk.reports.document import Table, table_of
from bigtrk.reports.terminal import at_width, show_header, show_table
from bigtrk.training.fitting import memory_of_cut

Row = Mapping[str, Any]
MEMORY = ("weights", "buffers", "inputs", "saved", "working", "halo", "process", "total")
WEIGHTS = ("parameters", "gradients", "optimizer")
MEMORY_RULE = (
    "Peak of one rank with the largest event. weights: with gradients and optimizer state; "
    "buffers: the engine's, and by how much reducing, updating or writing a checkpoint exceeds the "
    "pass; saved: activations kept for the backward pass; working: the rest that is alive at the "
    "peak."
)
MEASURED = "on small random graphs, since this model does not run on meta tensors (without data)"
# Notes on the parts of the whole event kept elsewhere: on an accelerator's host, on a local disk.
AWAY = {
    "host": "offload keeps in the memory of the host, too:",
    "files": "spill: chunk with all edges and their inputs in files of training.spill,",
}
SECTORS_RULE = "s: computing and exchanging the largest event, without the step's reduction."
ROOFLINE = (
    "the time that a step's arithmetic and memory traffic take on {} (a roofline); real steps may "
    "take several times as long: to measure them, add --choose --try, or name a run with --measured"
)
AS_MEASURED = (
    "the time that a step's arithmetic and memory traffic take on {} (a roofline), slowed down "
    "until a step takes as long as in {}"
)
FIRST_THAT_FITS = "the first that fits, by counted memory; add --try to measure which is fastest"
OPTIONS_RULE = (
    "In the order in which they are taken, each in the sectors in which it fits or takes least. "
    "Memory: peak of one rank."
)


def show_plan(plan: Row, console: Console) -> None:
    """Prints a plan that `make_plan` made."""
    out = at_width(console)
    show_header("Plan", _facts(plan), out)
    show_table(_levers(plan), out)
    show_table(_sectors(plan), out)


def show_choice(answer: Row, console: Console) -> None:
    """Prints an answer that `make_choice` made."""
    out = at_width(console)
    show_header("Choice", _choice_facts(answer), out)
    show_table(_options(answer), out)
    if answer["trials"]:
        show_table(_trials(answer), out)
    for command in answer["commands"]:
        say(command)


def _facts(plan: Row) -> dict[str, str]:
    machine, run = plan["machine"]["name"], plan["measured_run"]
    return {
        "memory": "counted",
        "seconds": AS_MEASURED.format(machine, run) if run else ROOFLINE.format(machine),
        "model": figures.settings(plan["model"]),
        **({"measured": MEASURED} if plan["measured"] else {}),
        "engine": plan["engine"],
        "events": _events(plan),
        "answer": _answer(plan),
    }


def _answer(plan: Row) -> str:
    """Returns the number of sectors in which the largest event fits, or the memory it needs."""
    budget, parts, least = plan["budget_bytes"], plan["smallest_parts"], plan["least"]
    if budget is None:
        return "give --memory to learn how many sectors fit"
    memory = f"{figures.memory(budget)} per rank"
    if least:
        enough = memory_of_cut(least["bytes"], least["parts"])
        return (
            f"the largest event does not fit {memory}; it needs at least {enough}; --choose "
            "looks for other settings"
        )
    files, on_a_rank = ", with edges in files" if plan["in_files"] else "", plan["sectors_per_rank"]
    several = f", {on_a_rank} on a rank," if on_a_rank > 1 else ""
    return f"the largest event fits in {number_of(parts, 'sector')}{several} of {memory}{files}"


def _events(answer: Row) -> str:
    largest = answer["events"]["largest"]
    sizes = (figures.count_of(largest[f"{noun}s"], noun) for noun in ("node", "edge"))
    return f"{answer['events']['number']}, the largest with {' and '.join(sizes)}"


def _memory(row: Row) -> dict[str, str]:
    known = {**row, "weights": sum(row[name] for name in WEIGHTS)}
    return {name: figures.memory(known[name]) for name in MEMORY}


def _levers(plan: Row) -> Table:
    rows = [
        {
            "recompute": "spill" if row["files"] else row["recompute"],
            "precision": row["precision"],
            **_memory(row),
            "fits in": figures.count(row["smallest_parts"]),
        }
        for row in plan["levers"]
    ]
    notes = [MEMORY_RULE]
    for place, what in AWAY.items():
        away = [row for row in plan["levers"] if row[place]]
        kept = (f"{figures.memory(row[place])} in {row['precision']}" for row in away)
        notes += [f"{what} {', '.join(kept)}."] if away else []
    return table_of("Memory of the whole event, by lever", rows, *notes, text_columns=2)


def _sectors(plan: Row) -> Table:
    rows = [
        {
            "sectors / ranks": f"{row['parts']} / {row['ranks']}",
            **_memory(row),
            "s": figures.seconds(row["seconds"]),
            "exchange s": figures.seconds(row["exchange_seconds"]),
        }
        for row in plan["sectors"]
    ]
    return table_of("The largest event in sectors", rows, SECTORS_RULE, text_columns=0)


def _choice_facts(answer: Row) -> dict[str, str]:
    chosen = answer["choice"]
    why = "the fastest trial that fits" if answer["trials"] else FIRST_THAT_FITS
    ranks = number_of(answer["ranks"], "rank")
    return {
        "machine": answer["machine"],
        "model": figures.settings(answer["model"]),
        "events": _events(answer),
        "memory": f"{figures.memory(answer['memory_bytes'])} of each of {ranks}, of which "
        f"{figures.memory(answer['budget_bytes'])} may be filled",
        "choice": f"{_settings(chosen)}, {_cut(chosen)}: {why}",
        "counted": figures.memory(chosen["memory"]),
    }


def _options(answer: Row) -> Table:
    rows = [
        {
            "settings": _settings(row),
            "fits": "chosen" if row == answer["choice"] else "yes" if row["fits"] else "no",
            "sectors": str(row["parts"]),
            "on a rank": str(row["sectors_per_rank"]),
            "memory": figures.memory(row["memory"]),
        }
        for row in _best(answer["options"])
    ]
    return table_of("Options", rows, OPTIONS_RULE, text_columns=2)


def _best(options: Sequence[Row]) -> list[Row]:
    """Returns one option for each set of settings: the last that fits, else the smallest."""
    best: dict[str, Row] = {}
    for row in options:
        known = best.get(_settings(row))
        if known is None or row["fits"] or row["memory"] < known["memory"]:
            best[_settings(row)] = row
    return list(best.values())


def _trials(answer: Row) -> Table:
    rows = [
        {
            "tried": _settings(row),
            "sectors": str(row["parts"]),
            "memory": "failed" if row["peak"] is None else figures.memory(row["peak"]),
            "counted": figures.memory(row["memory"]),
            "s": "" if row["seconds"] is None else figures.seconds(row["seconds"]),
        }
        for row in answer["trials"]
    ]
    return table_of("Trials", rows)


def _settings(row: Row) -> str:
    return " ".join(f"{key}={value}" for key, value in row["settings"].items()) or "as configured"


def _cut(row: Row) -> str:
    return "whole events" if row["parts"] == 1 else f"events in up to {row['parts']} sectors"
