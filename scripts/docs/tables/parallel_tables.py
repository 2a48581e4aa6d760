"""Tables of training on several ranks: exactness, launches, exchanges, scaling."""

from typing import Any

from scripts.docs.table import Table, percent

LEAST_SHARE = 1e-4


def parity_matrix(found: Any) -> Table:
    """Lists the largest relative difference by engine, precision, number of sectors on a rank and
    kind of graph.
    """
    cases = found["rows"]
    kinds = dict.fromkeys(case["kind"] for case in cases)
    rows = []
    for way in sorted(set(map(_way, cases))):
        own = [case for case in cases if _way(case) == way]
        worst = [max(_difference(case) for case in own if case["kind"] == kind) for kind in kinds]
        failed = sum(not case["passed"] for case in own)
        differences = [f"{value:.0e}" for value in worst]
        rows.append([*way, *differences, str(len(own)), str(failed)])
    return Table(
        ("engine", "precision", "sectors per rank", *kinds, "cases", "failed"), rows, texts=2
    )


def _way(case: Any) -> tuple[str, str, str]:
    return case["engine"], case["precision"], str(case["per_rank"])


def parity_models(found: Any) -> Table:
    """Lists the largest difference by network of PyG's layers and engine."""
    cases = found["rows"]
    engines = dict.fromkeys((case["engine"], case["precision"]) for case in cases)
    rows = []
    for layers in dict.fromkeys(_stack(case) for case in cases):
        own = [case for case in cases if _stack(case) == layers]
        worst = [
            f"{max(_difference(case) for case in own if case['engine'] == engine):.0e}"
            for engine, _ in engines
        ]
        failed = sum(not case["passed"] for case in own)
        rows.append([layers, *worst, str(len(own)), str(failed)])
    columns = [f"{engine}, {precision}" for engine, precision in engines]
    return Table(("layers", *columns, "cases", "failed"), rows)


def _stack(case: Any) -> str:
    """Names the layers of a network, each once."""
    return ", ".join(dict.fromkeys(case["layers"]))


def _difference(case: Any) -> float:
    return max(float(case[name]) for name in ("logits", "gradients", "weights"))


def exchange_cost(found: Any) -> Table:
    """Lists the share that exchanges take of a step, by the number of sectors."""
    rows = [
        [
            str(row["parts"]),
            f"{row['step']:.1f} s",
            percent(row["waiting"] / row["step"], 1),
            _share(row["transfer"] / row["step"]),
            _share(row["packing"] / row["step"]),
        ]
        for row in found["measured"]
    ]
    columns = ("sectors", "step", "in exchanges, with waiting", "transfer alone", "packing")
    return Table(columns, rows, texts=0)


def _share(part: float) -> str:
    return percent(part, 2) if part >= LEAST_SHARE else f"< {percent(LEAST_SHARE, 2)}"


def rehearsals(found: Any) -> Table:
    """Lists launches on several hosts, and how far losses are from those of one host."""
    rows = [
        [
            launch,
            str(row["nodes"]),
            str(row["ranks"]),
            str(row["steps"]),
            f"{row['max_relative_difference']:.1e}",
            f"{row['seconds']:.0f}",
        ]
        for launch, row in found["summary"].items()
    ]
    columns = ("launch", "hosts", "ranks", "steps", "largest relative difference", "seconds")
    return Table(columns, rows)


def scaling(found: Any) -> Table:
    """Lists weak and strong series."""
    rows, last = [], None
    for point in found["points"]:
        label, last = "" if point["series"] == last else _series(point), point["series"]
        rows.append(
            [
                label,
                str(point["ranks"]),
                f"{point['epoch_seconds']['mean']:.2f} s",
                percent(point["efficiency"]["mean"]),
                percent(point["shares"]["reduce"]),
                f"{point['imbalance']['mean']:.2f}",
                percent(point["metrics"]["auc"]["mean"], 2),
            ]
        )
    columns = ("", "ranks", "epoch", "efficiency", "in reductions", "imbalance", "AUC")
    return Table(columns, rows)


def _series(point: Any) -> str:
    data, per_rank = point["data"], " per rank" if point["kind"] == "weak" else ""
    ranks = point["ranks"] if per_rank else 1
    train, validation = data["train_events"] // ranks, data["validation_events"] // ranks
    return f"{point['kind']}, {train} + {validation} events{per_rank}"


def large_event(found: Any) -> Table:
    """Lists the seconds and the memory of each stage of a large event, from simulation to
    training.
    """
    seconds, gib = found["summary"]["seconds"], found["summary"]["gib"]
    stages = [[name, f"{seconds[name]:.0f} s", f"{gib[name]:.1f} GiB"] for name in found["stages"]]
    steps = f"training, {len(found['steps'])} steps"
    ranks = [
        [f"{steps}, {name}", f"{seconds['train']:.0f} s", f"{held:.1f} GiB"]
        for name, held in gib.items()
        if name not in found["stages"]
    ]
    return Table(("", "time", "memory"), [*stages, *ranks])
