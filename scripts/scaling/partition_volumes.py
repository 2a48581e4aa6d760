"""Counts what METIS's sectors compute and exchange, for 2 to 256 of them, by size of event.

    BIGTRK_TESTDATA=... python scripts/scaling/partition_volumes.py [--work FOLDER] [--large GRAPHS]
        [--output FILE] [--quick | --publish]

Event 1000 by the windows that are shipped and by wider ones (0.34 M and 3.0 M edges), and simulated
events in the Open Data Detector of 250,000 hits and of 1.0 M (40 M edges; --large names a folder of
graphs made before, whose first is taken instead). Each is cut once, in 256 parts, which merge
into fewer; cuts in 8 and 64 parts of their own are counted beside them. What was cut is kept under
--work, and a script that is started again goes on from there. Nothing is timed. The last line is
one JSON object: by event the shares of cut edges and halo rows in 8 parts, and that of the halo
rows of 64 parts which cross hosts of 4 ranks, in the tree's order and placed at random.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.disk.files import read_json, write_atomically, write_json
from bigtrk.errors import InputError
from bigtrk.graphs.storage.graph_folder import GraphFolder
from partition.partitioners import adjacency, bisect
from scripts.results import CHECKOUT, Results, add_options
from scripts.scaling.halo_volumes import Integers, finest_cut, volumes

FINEST, DIRECT, SEED = 256, (8, 64), 0
QUICK_FINEST = 16


@dataclass(frozen=True)
class Case:
    """An event to cut: event 1000, or a simulated one of so many particles, and the options that
    its graph is built with.
    """

    name: str
    particles: int | None = None
    options: tuple[str, ...] = ()


CASES = (
    Case("event 1000, shipped windows"),
    Case("event 1000, windows learnt above 0.3 GeV", None, ("--learn-windows", "--pt-min", "0.3")),
    Case("simulated, 250,000 hits", 23_300),
    Case("simulated, 1.0 M hits", 93_000, ("--learn-windows", "--pt-min", "1.6")),
)
QUICK = (Case("simulated, 2,000 hits", 200), Case("simulated, 4,000 hits", 400))


def graphs_of(case: Case, work: Path) -> Path:
    """Returns the folder of the event's graph, which is made where it is not there."""
    folder = work / case.name.replace(" ", "_").replace(",", "")
    events = folder / "events"
    if case.particles is None:
        events = Path(os.environ.get("BIGTRK_TESTDATA", "")) / "data" / "trackml_event1000"
        if not events.is_dir():
            raise InputError(f"{events}: no such folder; set BIGTRK_TESTDATA to what holds data/")
    else:
        size = ("--events", "1", "--particles", str(case.particles), "--detectors", "odd")
        bigtrk("simulate", str(events), *size)
    bigtrk("build", str(events), str(folder / "graphs"), *case.options)
    return folder / "graphs"


def bigtrk(*arguments: str) -> None:
    """Runs a command of bigtrk.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    say(f"$ bigtrk {' '.join(arguments)}", style="bold")
    subprocess.run([sys.executable, "-m", "bigtrk", *arguments], check=True, cwd=CHECKOUT)


def counted(graphs: Path, parts: int, kept: Path) -> dict[str, Any]:
    """Counts the volumes of the first graph of a folder, in up to so many parts; the parts of its
    nodes are kept as files.
    """
    folder = GraphFolder(graphs)
    event = next(iter(folder.events))
    # Half the bytes of what is stored, and none of the features.
    edge_index = folder.read(event).edge_index.numpy().astype(np.int32)
    nodes = folder.record(event)["nodes"]
    finest = finest_cut(edge_index, parts_of(edge_index, nodes, parts, kept), parts)
    powers = [1 << i for i in range(1, parts.bit_length())]
    own = [k for k in DIRECT if k < parts]
    direct = [finest_cut(edge_index, parts_of(edge_index, nodes, k, kept), k) for k in own]
    return {
        "nodes": nodes,
        "edges": edge_index.shape[1],
        "merged": [volumes(finest, k) for k in powers],
        "direct": [volumes(cut, k) for cut, k in zip(direct, own, strict=True)],
    }


def parts_of(edge_index: Integers, nodes: int, parts: int, kept: Path) -> Integers:
    """Returns METIS's part of each node, [N], cut unless it is kept."""
    path = kept / f"{parts}.npy"
    if not path.exists():
        say(f"METIS cuts {edge_index.shape[1]:,} edges in {parts} parts")
        part = bisect(
            adjacency(edge_index.astype(np.int64, copy=False), nodes), parts, SEED
        ).astype(np.int32)
        write_atomically(path, lambda temporary: save(temporary, part))
    found: Integers = np.load(path)
    return found


def save(path: Path, part: Integers) -> None:
    with path.open("wb") as file:  # np.save would add an ending to the name
        np.save(file, part)


def found_of(case: Case, work: Path, large: Path | None, parts: int) -> dict[str, Any]:
    """Returns the volumes of an event, counted unless they are kept under `work`."""
    folder = work / case.name.replace(" ", "_").replace(",", "")
    record = folder / "volumes.json"
    if not record.exists():
        graphs = large if large and case is CASES[-1] else graphs_of(case, work)
        found = counted(graphs, parts, folder)
        write_json(record, {"event": case.name, **found})
    kept: dict[str, Any] = read_json(record)
    return kept


def shares(found: dict[str, Any]) -> dict[str, float]:
    """Makes an event's entry of the last line."""
    by_parts = {cut["parts"]: cut for cut in found["merged"]}
    eight, many = by_parts[8], by_parts[min(64, max(by_parts))]
    hosts = many["hosts"]["4"]
    return {
        "cut": eight["cut_edges"] / found["edges"],
        "halo": eight["halo_rows"] / found["nodes"],
        "between": hosts["tree"]["rows"] / max(many["halo_rows"], 1),
        "between_random": hosts["random"]["rows"] / max(many["halo_rows"], 1),
    }


def table(rows: list[dict[str, Any]]) -> Table:
    names = ("event", "parts", "cut %", "halo %", "neighbours", "between 4s %", "random %")
    shown = Table(*names, title="METIS")
    for row in rows:
        for cut in row["merged"]:
            hosts = cut["hosts"].get("4")
            crossing = [hosts[name]["rows"] for name in ("tree", "random")] if hosts else []
            shown.add_row(
                row["event"],
                str(cut["parts"]),
                f"{cut['cut_edges'] / row['edges']:.1%}",
                f"{cut['halo_rows'] / row['nodes']:.1%}",
                f"{cut['neighbours']['mean']:.1f}",
                *(f"{rows / max(cut['halo_rows'], 1):.1%}" for rows in crossing),
            )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, help="kept; a new folder by default")
    parser.add_argument("--large", type=Path, help="graphs, for those of the largest event")
    add_options(parser, quick="two small events, in up to 16 parts")
    arguments = parser.parse_args()
    results = Results("partition_volumes", arguments)
    cases, parts = (QUICK, QUICK_FINEST) if arguments.quick else (CASES, FINEST)
    with tempfile.TemporaryDirectory(prefix="bigtrk-volumes-") as folder:
        work = (arguments.work or Path(folder)).resolve()
        rows = [found_of(case, work, arguments.large, parts) for case in cases]
    console.print(table(rows))
    results.write({row["event"]: shares(row) for row in rows}, events=rows, seed=SEED)


if __name__ == "__main__":
    exit_on_bad_input("partition_volumes.py", main)
