"""Fits the law of METIS's cuts (bigtrk/cost/cut_law.py) to docs/results/partition_volumes.json.

    python scripts/scaling/fit_cut_law.py [--volumes FILE]

Least squares in logarithms over all events and numbers of parts; the exponent of these is the best
of a grid. It prints the constants to be written into the law, the largest and the median relative
error, and the same for the law as it stands.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bigtrk.console import exit_on_bad_input
from bigtrk.cost.event_size import CUT, FEWEST_NODES, HALO, PowerLaw
from bigtrk.disk.files import read_json
from scripts.results import CHECKOUT, RESULTS

GRID = np.arange(0.05, 1.5, 0.005)  # exponents of the number of parts
LAWS = {"CUT": ("cut_edges", "edges", CUT), "HALO": ("halo_rows", "nodes", HALO)}


def measured(found: Any, counted: str, per: str) -> list[tuple[float, float, int, float]]:
    """Lists (nodes, edges, parts, share) of all cuts in a result file."""
    return [
        (row["nodes"], row["edges"], cut["parts"], cut[counted] / row[per])
        for row in found["events"]
        for cut in row["merged"]
        if cut[counted]
    ]


def fitted(cuts: list[tuple[float, float, int, float]]) -> PowerLaw:
    """Returns the law with the smallest squared error in logarithms."""
    nodes, edges, parts, share = map(np.array, zip(*cuts, strict=True))
    event = [np.ones(len(cuts)), np.log(edges / nodes), np.log(nodes / FEWEST_NODES)]
    design = np.stack(event, axis=1)

    def solved(exponent: float) -> tuple[float, PowerLaw]:
        wanted = np.log(share) - np.log(parts**exponent - 1)
        [factor, degree, size], *_ = np.linalg.lstsq(design, wanted, rcond=None)
        error = float(np.square(wanted - design @ [factor, degree, size]).sum())
        return error, PowerLaw(float(np.exp(factor)), float(degree), float(size), float(exponent))

    return min(map(solved, GRID), key=lambda pair: pair[0])[1]


def errors(
    law: Callable[[float, float, int], float], cuts: list[tuple[float, float, int, float]]
) -> list[float]:
    """Lists the relative errors of a law."""
    return [law(nodes, edges, parts) / share - 1 for nodes, edges, parts, share in cuts]


def figures(law: PowerLaw, cuts: list[tuple[float, float, int, float]]) -> dict[str, float]:
    sizes = np.abs(errors(law, cuts))
    return {**asdict(law), "median": float(np.median(sizes)), "largest": float(sizes.max())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    volumes = CHECKOUT / RESULTS / "partition_volumes.json"
    parser.add_argument("--volumes", type=Path, default=volumes, metavar="FILE")
    found = read_json(parser.parse_args().volumes)
    cuts = {name: measured(found, counted, per) for name, (counted, per, _) in LAWS.items()}
    fits = {name: figures(fitted(cuts[name]), cuts[name]) for name in LAWS}
    stands = {name: figures(law, cuts[name]) for name, (_, _, law) in LAWS.items()}
    print(json.dumps({"fitted": fits, "stands": stands}, indent=1))


if __name__ == "__main__":
    exit_on_bad_input("fit_cut_law.py", main)
