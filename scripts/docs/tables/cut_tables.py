"""Tables of METIS's cuts, and of the curves that are predicted from them."""

from typing import Any

from scripts.docs.table import Table, percent

SHOWN = (2, 8, 32, 64, 256)  # sectors
RANKS_PER_NODE = "4"


def partition_volumes(found: Any) -> Table:
    """Lists what METIS's sectors exchange, and what of it crosses hosts of four ranks."""
    rows = [
        [
            _event(row) if cut["parts"] == SHOWN[0] else "",
            str(cut["parts"]),
            percent(cut["cut_edges"] / row["edges"], 1),
            percent(cut["halo_rows"] / row["nodes"], 1),
            f"{cut['largest_edges'] * cut['parts'] / (row['edges'] + cut['cut_edges']):.2f}",
            f"{cut['neighbours']['mean']:.0f} ({cut['neighbours']['most']})",
            *_crossing(cut),
        ]
        for row in found["events"]
        for cut in row["merged"]
        if cut["parts"] in SHOWN
    ]
    columns = (
        "event", "sectors", "edges cut", "halo rows / nodes", "imbalance", "neighbours (most)",
        "between hosts, tree", "dealt out", "random",
    )  # fmt: skip
    return Table(columns, rows)


def _event(row: Any) -> str:
    return f"{row['event']}: {row['nodes']:,} nodes, {row['edges']:,} edges"


def _crossing(cut: Any) -> list[str]:
    """Writes the shares of halo rows that cross hosts, by placement."""
    hosts = cut["hosts"].get(RANKS_PER_NODE)
    if hosts is None or not cut["halo_rows"]:
        return [""] * 3
    return [percent(hosts[way]["rows"] / cut["halo_rows"]) for way in ("tree", "cyclic", "random")]
