"""Tables of searches for settings, and of optimizers."""

from typing import Any

from scripts.docs.table import Table
from scripts.physics.search_methods import TITLES


def methods(found: Any) -> Table:
    """Lists methods at equal total time."""
    rows = [
        [
            name,
            f"{row['mean']:.5f} ± {row['deviation']:.5f}",
            f"{row['trials']:.1f}",
            f"{row['seconds']:.0f} s",
        ]
        for way, name in TITLES.items()
        if (row := found["methods"].get(way))
    ]
    return Table(("method", "best AUC", "trials", "training"), rows)


def optimizers(found: Any) -> Table:
    """Lists optimizers at equal time."""
    rows = [
        [
            name,
            f"{row['rate']:g}",
            f"{row['mean']:.5f} ± {row['deviation']:.5f}",
            f"{row['epochs']:.0f}",
        ]
        for name, row in found["optimizers"].items()
    ]
    return Table(("", "rate", "least validation loss", "epochs"), rows)
