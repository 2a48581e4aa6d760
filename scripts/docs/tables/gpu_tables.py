"""Tables of what was measured on GPUs."""

from typing import Any

from scripts.docs.table import Table, percent

_GRAPHS = [
    f"{side}_{graph}" for graph in ("event1000", "ctd") for side in ("steps", "plain", "compiled")
]


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
