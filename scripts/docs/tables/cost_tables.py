"""Tables of the cost of trainings and of making tracks: time, memory, and how well the former are
predicted.
"""

from statistics import median
from typing import Any

from scripts.docs.table import Table, percent


def hot_path(found: Any) -> Table:
    """Lists every form of a step at 300,000 edges, with both settings of the allocator."""
    at = {
        (row["side"], row["keep_freed"]): [
            f"{row['seconds']:.1f} s",
            f"{row['bytes'] / 1e9:.2f} GB",
        ]
        for row in found["rows"]
        if row["size"] == "300 K" and not row["infer"]
    }
    sides = dict.fromkeys(side for side, _ in at)
    columns = ("", "step", "memory", "step, freed memory kept", "memory, freed memory kept")
    rows = [[_side(s), *at[s, False], *at.get((s, True), ["", ""])] for s in sides]
    return Table(columns, rows)


def _side(name: str) -> str:
    if name == "reference":
        return "plain, as acorn"
    recompute, precision = name.split()
    return f"`{recompute}`, {precision}"


def hot_path_sizes(found: Any) -> Table:
    """Lists the step that is chosen for large events, by size."""
    chosen = [row for row in found["rows"] if row["side"] == "chunk bf16" and not row["keep_freed"]]
    rows = [
        [
            row["size"] + (", scored only" if row["infer"] else ""),
            f"{row['nodes']:,}",
            f"{row['edges']:,}",
            f"{row['seconds']:.1f} s",
            f"{row['seconds'] / row['edges'] * 1e6:.1f} us",
            f"{row['bytes'] / 1e9:.2f} GB",
            f"{row['bytes'] / row['edges']:,.0f}",
        ]
        for row in sorted(chosen, key=lambda row: int(row["edges"]))
    ]
    return Table(("", "nodes", "edges", "step", "per edge", "memory", "bytes per edge"), rows)


def attention(found: Any) -> Table:
    """Lists every form of the attention network's step."""
    rows = [
        [
            row["graph"],
            row["side"],
            f"{row['nodes']:,}",
            f"{row['edges']:,}",
            f"{row['seconds'] * 1e3:,.0f} ms",
            f"{row['bytes'] / 1e6:,.0f} MB",
        ]
        for row in found["rows"]
    ]
    return Table(("graph", "form", "nodes", "edges", "step", "memory"), rows, texts=2)


def sharding(found: Any) -> Table:
    """Lists the MB that the fullest rank holds of the model, by engine and ranks."""
    parts = ("parameters", "gradients", "optimizer", "other")
    rows = []
    for row in found["measured"]:
        held = [row["bytes"][part] for part in parts]
        offload = ", CPU offload" if row["case"].endswith("offload") else ""
        name = row["engine"].removeprefix("DeepSpeed ") + offload
        rows.append([name, str(row["ranks"]), *(f"{n / 1e6:,.0f}" for n in [*held, sum(held)])])
    columns = ("engine", "ranks", "parameters", "gradients", "optimizer", "buffers", "sum")
    return Table(columns, rows)


def checkpoint(found: Any) -> Table:
    """Lists the time that training waits for a checkpoint, by engine."""
    rows = [
        [
            row["engine"],
            f"{row['bytes'] / 2**20:.1f} MiB",
            *(f"{1000 * row['blocked'][way]:.1f} ms" for way in ("thread", "synchronous")),
            percent(row["ratio"]),
            *(f"{1000 * row['round'][way]:.0f} ms" for way in ("none", "thread", "synchronous")),
        ]
        for row in found["engines"].values()
    ]
    columns = (
        "engine", "checkpoint", "blocked, thread", "blocked, synchronous", "ratio",
        "round without", "round, thread", "round, synchronous",
    )  # fmt: skip
    return Table(columns, rows)


def reconstruct(found: Any) -> Table:
    """Lists the edges, seconds and memory from hits to tracks, by size of event."""
    edges, stages = (list(found["rows"][0][key]) for key in ("edges", "seconds"))
    rows = [
        [
            f"{row['hits']:,.0f}",
            *(f"{row['edges'][stage]:,.0f}" for stage in edges),
            *(f"{row['seconds'][stage]:.2f} s" for stage in stages),
            f"{row['all_seconds']:.1f} s",
            f"{row['all_seconds'] / row['hits'] * 1e5:,.1f} s",
            f"{row['bytes'] / 2**30:.1f} GiB",
        ]
        for row in found["rows"]
    ]
    columns = (
        "hits", *(f"edges, {stage}" for stage in edges), *stages, "all", "per 100,000 hits",
        "memory",
    )  # fmt: skip
    return Table(columns, rows, texts=0)


def acts(found: Any) -> Table:
    """Lists the seconds of an event by stage: our model, and each form exported for ACTS."""
    stages = {name.removesuffix("_seconds"): one for name, one in found["summary"].items()}
    ways = list(dict.fromkeys(way for one in stages.values() for way in one))
    rows = [
        [stage, *(f"{one[way]:.2f} s" if way in one else "" for way in ways)]
        for stage, one in stages.items()
    ]
    names = {"onnx": "ONNX Runtime", "pt": "TorchScript", "ours": "bigtrk"}
    columns = [
        names[way.split("_")[0]] + (", with edge_attr" if "edge_attr" in way else "")
        for way in ways
    ]
    return Table(("stage", *columns), rows)


def any_size(found: Any) -> Table:
    """Lists trainings with edges in memory and in files: the time of a step, by edge too, the most
    memory that the process had, and its control group, and disk.
    """
    small, large, edges = found["small"], found["large"], found["graphs"]
    limited = [_gib(large["peak"]), f"{large['disk'] / 1e9:.1f} GB"]
    ways = (
        ("3M", "in memory", small["memory"], ["", ""]),
        ("3M", "in files", small["files"], ["", ""]),
        ("40M", _under(found["summary"]), large, limited),
    )
    rows = []
    for size, where, took, group in ways:
        n_edges, seconds = edges[size]["edges"], median(took["step_seconds"][1:])
        per_edge = f"{seconds / n_edges * 1e6:.1f} us"
        step = [f"{n_edges:,}", f"{seconds:.0f} s", per_edge]
        rows.append([where, *step, _gib(took["bytes"]), *group])
    columns = (
        "states of edges", "edges", "step", "per edge", "memory of the process",
        "of its control group", "disk",
    )  # fmt: skip
    return Table(columns, rows)


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB"


def _under(summary: Any) -> str:
    return f"in files, at most {summary['memory_limit_gib']:.0f} GiB"


_GPU_GRAPHS = [
    f"{side}_{graph}" for graph in ("event1000", "ctd") for side in ("steps", "plain", "compiled")
]


def gpu_steps(found: Any) -> Table:
    """Lists the steps on each graph, with the shares of the data sheet that ours reached."""
    large = (found[name] for name in _GPU_GRAPHS if name in found)
    rows = [
        [
            f"{n / 1e6:.1f} M" if (n := part["edges"]) >= 1e6 else f"{n:,}",
            row["side"],
            str(row["hidden"]),
            f"{1e3 * row['seconds']:.1f} ms" if row["seconds"] else "out of memory",
            f"{row['peak_bytes'] / 1e9:.2f} GB" if row["seconds"] else "",
            percent(row.get("mfu")),
            percent(row.get("bandwidth")),
        ]
        for part in (*found.get("compiled_small", {}).values(), *large)
        for row in part["rows"]
    ]
    columns = ("edges", "software", "hidden", "step", "memory", "MFU", "bandwidth")
    return Table(columns, rows, texts=2)
