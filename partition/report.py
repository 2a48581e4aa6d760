"""The report of the partitioning program: partition.json and a table."""

from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from bigtrk.disk.files import write_json
from partition.quality import overall

REPORT = "partition.json"
_LONGEST_TABLE = 20  # events; a screen holds no more, and partition.json has them all


def write_report(out: Path, manifest: dict[str, Any], failed: dict[str, str]) -> dict[str, Any]:
    """Assembles partition.json from the manifest of sectors, writes it and returns its content.

    `failed`: the reason for each event that was not cut.
    """
    records = manifest["events"]
    content = {
        "parameters": manifest["parameters"],
        "software": manifest["software"],
        "overall": overall(records.values()),
        "events": {
            event: {
                "parts": record["parts"],
                "nodes": record["nodes"],
                "edges": record["edges"],
                **record["quality"],
            }
            for event, record in records.items()
        },
        "failed": failed,
    }
    write_json(out / REPORT, content)
    return content


def table(report: dict[str, Any]) -> Table:
    """Makes the report's table for a terminal."""
    shown = list(report["events"].items())[:_LONGEST_TABLE]
    hidden = len(report["events"]) - len(shown)
    more = f"and {hidden} more in {REPORT}; " if hidden else ""
    caption = f"{more}s: seconds to read, partition and cut, without writing"
    result = Table(caption=caption, box=SIMPLE, padding=0)
    result.add_column("event", no_wrap=True)
    for name in ("parts", "edges", "cut", "halo", "imbalance", "neighbours", "s", "METIS s"):
        result.add_column(name, justify="right", no_wrap=True)
    for event, figures in shown:
        result.add_row(event, str(figures["parts"]), str(figures["edges"]), *_cells(figures))
    result.add_section()
    result.add_row("overall", "", "", *_cells(report["overall"]))
    return result


def _cells(figures: dict[str, float]) -> list[str]:
    return [
        f"{figures['cut_fraction']:.2%}",
        f"{figures['halo_fraction']:.2%}",
        f"{figures['edge_imbalance']:.3f}",
        f"{figures['neighbours']:.1f}",
        f"{figures['seconds']:.2f}",
        f"{figures['metis_seconds']:.2f}",
    ]
