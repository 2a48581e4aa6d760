"""Tables of what kernels move, and of what was measured on GPUs."""

from typing import Any

from scripts.docs.table import Table, percent

_GRAPHS = [
    f"{side}_{graph}" for graph in ("event1000", "ctd") for side in ("steps", "plain", "compiled")
]


def kernels(found: Any) -> Table:
    """Lists the launches of a layer in bfloat16, by graph and width."""
    shown = [row for row in found["rows"] if row["precision"] == "bf16"]
    gpus = [sheet["name"] for sheet in found["data_sheets"]]
    rows = [
        [
            f"{row['edges'] / 1e6:.1f} M",
            str(row["hidden"]),
            row["launch"],
            f"{row['flops'] / 1e9:,.0f}" if row["flops"] else "",
            f"{row['least_bytes'] / 1e9:.2f}",
            f"{row['moved_bytes'] / 1e9:.2f}",
            f"{row['ratio']:.2f}",
            f"{row['again_in_l2_bytes'] / 1e9:.1f}" if row["again_in_l2_bytes"] else "",
            f"{row['intensity']:.0f}" if row["flops"] else "",
            *(_bound(row["roofline"][gpu], row["flops"]) for gpu in gpus),
        ]
        for row in shown
    ]
    columns = (
        "edges", "hidden", "launch", "GFLOP", "must, GB", "moved, GB", "ratio", "within L2, GB",
        "FLOP/byte",
    )  # fmt: skip
    return Table((*columns, *gpus), rows, texts=3)


def _bound(roofline: Any, flops: float) -> str:
    if not flops:
        return str(roofline["bound"])
    return f"{roofline['bound']}, {roofline['flops_per_second'] / 1e12:.0f} TFLOP/s"


def data_sheets(found: Any) -> Table:
    """Lists what the data sheets promise on which the rooflines of kernels stand."""
    rows = [
        [
            sheet["name"],
            *(f"{sheet[key] / 1e12:g}" for key in ("bandwidth", "bf16", "fp32")),
            f"{sheet['l2_bytes'] / 1e6:g}",
        ]
        for sheet in found["data_sheets"]
    ]
    columns = ("GPU", "memory, TB/s", "bfloat16, TFLOP/s", "float32, TFLOP/s", "L2, MB")
    return Table(columns, rows)


def steps(found: Any) -> Table:
    """Lists the steps on each graph, with the shares of the data sheet that ours reached."""
    rows = [
        [
            f"{part['edges'] / 1e6:.1f} M",
            row["side"],
            str(row["hidden"]),
            f"{1e3 * row['seconds']:.1f} ms" if row["seconds"] else "out of memory",
            f"{row['peak_bytes'] / 1e9:.2f} GB" if row["seconds"] else "",
            percent(row.get("mfu")),
            percent(row.get("bandwidth")),
        ]
        for part in (found[name] for name in _GRAPHS if name in found)
        for row in part["rows"]
    ]
    columns = ("edges", "side", "hidden", "step", "memory", "MFU", "bandwidth")
    return Table(columns, rows, texts=2)
