"""The tables of `bigtrk plan`."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console

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
# Nine in ten runs are to be predicted this well, which no prediction does where steps differ more.
STEADY = 0.2
MEASURED = "on small random graphs, since this model does not run on meta tensors (without data)"
SECTORS_RULE = (
    "s: computing and exchanging the largest event{on_host}. The tables of scaling differ: a step "
    "there is the mean of 32 of drawn events, with the reduction{on_fewer}."
)
ON_HOST = ", with {} rank(s) to share the cores of a host"
ON_FEWER = ", on hosts with no more ranks than the row has"
SCALING_RULE = (
    "Step: mean of 32 drawn from the event sizes. Waiting: for the rank with the largest events. "
    "Communication: exchange and reduction. Efficiency: events per second and rank, of the "
    "smallest world's."
)


def show_plan(plan: Row, console: Console) -> None:
    """Prints a plan, in the form of `make_plan`."""
    out = at_width(console)
    show_header("Plan", _facts(plan), out)
    show_table(_levers(plan), out)
    show_table(_sectors(plan), out)
    show_table(_scaling("Weak scaling: events grow with the ranks", plan["weak_scaling"]), out)
    show_table(_scaling("Strong scaling: the same events per step", plan["strong_scaling"]), out)


def show_checks(checks: Sequence[Row], console: Console) -> None:
    """Prints predictions beside records, in the form of `check_summary`."""
    columns = ("run", "peak memory", "recorded", "error %", "step s", "recorded", "error %")
    rows = [
        (
            str(check["run"]),
            figures.memory(check["peak_bytes"]),
            figures.memory(check["recorded_peak_bytes"]),
            _error(check["memory_error"]),
            figures.seconds(check["batch_seconds"]),
            figures.seconds(check["recorded_batch_seconds"]),
            _error(check["time_error"]),
        )
        for check in checks
    ]
    show_table(Table("Predicted and recorded", columns, tuple(rows)), at_width(console))


def show_constants(constants: Row, path: str, console: Console) -> None:
    """Prints the constants of a calibration, and how far they are from its own measurements."""
    errors = constants["fit"]["relative_errors"]
    facts = {
        "machine": constants["name"],
        "one rank alone": _rates(constants["alone"]),
        f"each of {constants['ranks_together']} ranks": _rates(constants["together"]),
        "more ranks than cores": f"{constants['crowding']:.2f} times their share of the time",
        "those that exchange rows": f"{constants['crowded_exchange']:.2f} times as long as others",
        "ranks that others wait for": f"{constants['waited_for']:.2f} times their time",
        "links": ", ".join(
            f"{name} hosts {link['latency'] * 1e6:.0f} us, {figures.count(link['bandwidth'])}byte/s"
            for name, link in constants["network"].items()
        ),
        "process": figures.memory(constants["private_bytes"]),
        "steps measured again": f"nine in ten within {constants['repeated']:.0%}",
        "errors of the fit": ", ".join(
            f"{kind} {median(map(abs, found)):.0%}, at most {max(map(abs, found)):.0%}"
            for kind, found in errors.items()
        ),
        "written to": path,
        **unsteady(constants),
    }
    show_header("Calibration", facts, at_width(console))


def _rates(rates: Row) -> str:
    """Lists what a rank computes in a second, and what takes none as free."""
    units = {"fp32": "flop/s in fp32", "bf16": "flop/s in bf16", "traffic": "byte/s"}
    known = {name: rates["seconds"].get(name, 0.0) for name in units}
    fast = [f"{figures.count(1 / s)}{units[name]}" for name, s in known.items() if s]
    return ", ".join([*fast, f"{rates['seconds'].get('operations', 0.0) * 1e6:.1f} us to start"])


def _facts(plan: Row) -> dict[str, str]:
    largest = plan["events"]["largest"]
    kind = "mini-batches" if plan["sampling"] else "events"
    return {
        "machine": plan["machine"]["name"],
        **({} if plan["calibrated"] else {"not calibrated": _doubt(plan["machine"])}),
        **unsteady(plan["machine"]),
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


def unsteady(measured: Row) -> dict[str, str]:
    """Says that the same steps took other times when they were measured again, if they did: by what
    fraction is `repeated`, of a machine or of an answer.
    """
    if measured["repeated"] <= STEADY:
        return {}
    advice = "end what else runs there, and calibrate again; a host shared with others may stay so"
    return {
        "not steady": f"one in ten steps took {measured['repeated']:.0%} more or less time when "
        f"measured again, and seconds cannot be predicted better: {advice}"
    }


def _doubt(machine: Row) -> str:
    """Says by how much predictions of uncalibrated constants may be off, and what helps."""
    exceeded = machine["exceeded"]
    known = "these constants were compared with no run"
    if exceeded:
        known = (
            f"steps took up to {exceeded['seconds']:.1f} times as long as predicted and "
            f"{exceeded['memory']:.1f} times the memory"
        )
    return f"{known}; measure this machine with bigtrk plan --calibrate"


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
    shared = plan["machine"]["accelerator"] == "cpu"
    rule = SECTORS_RULE.format(
        on_host=ON_HOST.format(plan["ranks_on_host"]) if shared else "",
        on_fewer=ON_FEWER if shared else "",
    )
    return Table("The largest event in sectors", columns, tuple(rows), (rule,), text_columns=0)


def _scaling(title: str, points: Sequence[Row]) -> Table:
    columns = (
        *("ranks", "sectors", "events/step", "step s", "speed-up", "efficiency %"),
        *("imbalance", "waiting %", "communication %"),
    )
    rows = [
        (
            str(p["ranks"]),
            str(p["parts"]),
            str(p["events_per_step"]),
            figures.seconds(p["step_seconds"]),
            figures.decimal(p["speedup"]),
            figures.share(p["efficiency"]),
            figures.decimal(p["imbalance"]),
            figures.share(p["waiting"]),
            figures.share(p["communication"]),
        )
        for p in points
    ]
    return Table(title, columns, tuple(rows), (SCALING_RULE,), text_columns=0)


def _error(value: float) -> str:
    return f"{100 * value:+z.0f}"
