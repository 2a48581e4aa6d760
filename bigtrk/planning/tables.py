"""The tables of `bigtrk plan`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from bigtrk.console import say
from bigtrk.reports import figures
from bigtrk.reports.document import Table
from bigtrk.reports.terminal import at_width, show_header, show_table
from bigtrk.training.steps.routers import memory_of_cut

Row = Mapping[str, Any]
MEMORY = ("weights", "buffers", "inputs", "saved", "working", "halo", "process")
WEIGHTS = ("parameters", "gradients", "optimizer")
MEMORY_RULE = (
    "Peak of one rank with the largest event. weights: with gradients and optimizer state; "
    "buffers: the engine's, and by how much reducing, updating or writing a checkpoint exceeds the "
    "pass; saved: activations kept for the backward pass; working: the rest that is alive at the "
    "peak."
)
MEASURED = "on small random graphs, since this model does not run on meta tensors (without data)"
SECTORS_RULE = "s: computing and exchanging the largest event, without the step's reduction."
ROOFLINE = (
    "a roofline of {}: no prediction, steps may take several times as long; measure with "
    "--choose --try, or name a run with --measured"
)
AS_MEASURED = "a roofline of {}, slowed down until a step takes what that of {} took"
FIRST_THAT_FITS = "the first that fits, by counted memory; add --try to measure which is fastest"
OPTIONS_RULE = (
    "In the order in which they are taken, each in the sectors in which it fits or takes least. "
    "Memory: peak of one rank."
)


def show_plan(plan: Row, console: Console) -> None:
    """Prints a plan, in the form of `make_plan`."""
    out = at_width(console)
    show_header("Plan", _facts(plan), out)
    show_table(_levers(plan), out)
    show_table(_sectors(plan), out)


def show_choice(answer: Row, console: Console) -> None:
    """Prints an answer, in the form of `make_choice`."""
    out = at_width(console)
    show_header("Choice", _choice_facts(answer), out)
    show_table(_options(answer), out)
    if answer["trials"]:
        show_table(_trials(answer), out)
    for command in answer["commands"]:
        say(command)


def _facts(plan: Row) -> dict[str, str]:
    largest = plan["events"]["largest"]
    kind = "mini-batches" if plan["sampling"] else "events"
    return {
        "memory": "counted",
        "seconds": _seconds_rule(plan),
        "model": figures.settings(plan["model"]),
        **({"measured": MEASURED} if plan["measured"] else {}),
        "engine": plan["engine"],
        **_sampling(plan["sampling"]),
        kind: f"{plan['events']['number']}, the largest with "
        f"{figures.count(largest['nodes'])} nodes and {figures.count(largest['edges'])} edges",
        "answer": _answer(plan),
    }


def _answer(plan: Row) -> str:
    """Says in how many sectors the largest event fits, or the least memory that would do."""
    budget, parts, least = plan["budget_bytes"], plan["smallest_parts"], plan["least"]
    if budget is None:
        return "give --memory to learn how many sectors fit"
    memory = f"{figures.memory(budget)} per rank"
    if least:
        enough = memory_of_cut(least["bytes"], least["parts"])
        return (
            f"the largest event does not fit {memory}; the least that would do is {enough}; "
            "--choose looks for other settings"
        )
    files = ", with edges in files" if plan["in_files"] else ""
    return f"the largest event fits in {parts} sector(s){_several(plan)} of {memory}{files}"


def _several(plan: Row) -> str:
    """Says how many sectors a rank takes of the largest event, if several."""
    on_a_rank = plan["sectors_per_rank"]
    return f", {on_a_rank} on a rank," if on_a_rank > 1 else ""


def _sampling(sampling: Row | None) -> dict[str, str]:
    """Says what a rank keeps to make mini-batches from."""
    if sampling is None:
        return {}
    kept = figures.memory(sampling["held_bytes"])
    return {"sampling": f"{sampling['method']}; of one rank, which keeps {kept} for it, too"}


def _seconds_rule(plan: Row) -> str:
    """Says what the seconds of a plan are."""
    machine, run = plan["machine"]["name"], plan["measured_run"]
    return AS_MEASURED.format(machine, run) if run else ROOFLINE.format(machine)


def _memory(row: Row) -> tuple[str, ...]:
    sums = [
        sum(row[name] for name in WEIGHTS),
        *(row[name] for name in (*MEMORY[1:], "total")),
    ]
    return tuple(figures.memory(bytes_) for bytes_ in sums)


def _levers(plan: Row) -> Table:
    columns = ("recompute", "precision", *MEMORY, "total", "fits in")
    rows = [
        (
            "spill" if row["files"] else row["recompute"],
            row["precision"],
            *_memory(row),
            figures.count(row["smallest_parts"]),
        )
        for row in plan["levers"]
    ]
    title = "Memory of the whole event, by lever"
    notes = (MEMORY_RULE, *_on_host(plan["levers"]), *_in_files(plan["levers"]))
    return Table(title, columns, tuple(rows), notes, text_columns=2)


def _on_host(levers: Sequence[Row]) -> list[str]:
    """Says what an accelerator's host keeps of the whole event."""
    kept = [f"{figures.memory(row['host'])} in {row['precision']}" for row in levers if row["host"]]
    return [f"offload keeps in the memory of the host, too: {', '.join(kept)}."] if kept else []


def _in_files(levers: Sequence[Row]) -> list[str]:
    """Says what a local disk keeps of the whole event."""
    kept = [
        f"{figures.memory(row['files'])} in {row['precision']}" for row in levers if row["files"]
    ]
    if not kept:
        return []
    sizes = ", ".join(kept)
    return [f"spill: chunk with all edges and their inputs in files of training.spill, {sizes}."]


def _sectors(plan: Row) -> Table:
    columns = ("sectors / ranks", *MEMORY, "total", "s", "exchange s")
    rows = [
        (
            f"{row['parts']} / {row['ranks']}",
            *_memory(row),
            figures.seconds(row["seconds"]),
            figures.seconds(row["exchange_seconds"]),
        )
        for row in plan["sectors"]
    ]
    return Table(
        "The largest event in sectors", columns, tuple(rows), (SECTORS_RULE,), text_columns=0
    )


def _choice_facts(answer: Row) -> dict[str, str]:
    largest, chosen = answer["events"]["largest"], answer["choice"]
    why = "the fastest trial that fits" if answer["trials"] else FIRST_THAT_FITS
    return {
        "machine": answer["machine"],
        "model": figures.settings(answer["model"]),
        "events": f"{answer['events']['number']}, the largest with "
        f"{figures.count(largest['nodes'])} nodes and {figures.count(largest['edges'])} edges",
        "memory": f"{figures.memory(answer['memory_bytes'])} of each of {answer['ranks']} rank(s), "
        f"of which {figures.memory(answer['budget_bytes'])} may be filled",
        "choice": f"{_settings(chosen)}, {_cut(chosen)}: {why}",
        "counted": figures.memory(chosen["memory"]),
    }


def _options(answer: Row) -> Table:
    columns = ("settings", "fits", "sectors", "on a rank", "memory")
    rows = [
        (
            _settings(row),
            "chosen" if row == answer["choice"] else "yes" if row["fits"] else "no",
            str(row["parts"]),
            str(row["sectors_per_rank"]),
            figures.memory(row["memory"]),
        )
        for row in _best(answer["options"])
    ]
    return Table("Options", columns, tuple(rows), (OPTIONS_RULE,), text_columns=2)


def _best(options: Sequence[Row]) -> list[Row]:
    """Returns one row for each settings: of the last, which fits, or of the least memory."""
    best: dict[str, Row] = {}
    for row in options:
        known = best.get(_settings(row))
        if known is None or row["fits"] or row["memory"] < known["memory"]:
            best[_settings(row)] = row
    return list(best.values())


def _trials(answer: Row) -> Table:
    columns = ("tried", "sectors", "memory", "counted", "s")
    rows = [
        (
            _settings(row),
            str(row["parts"]),
            "failed" if row["peak"] is None else figures.memory(row["peak"]),
            figures.memory(row["memory"]),
            "" if row["seconds"] is None else figures.seconds(row["seconds"]),
        )
        for row in answer["trials"]
    ]
    return Table("Trials", columns, tuple(rows), (), text_columns=1)


def _settings(row: Row) -> str:
    return " ".join(f"{key}={value}" for key, value in row["settings"].items()) or "as configured"


def _cut(row: Row) -> str:
    return "whole events" if row["parts"] == 1 else f"events in up to {row['parts']} sectors"
