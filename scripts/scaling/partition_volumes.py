"""Counts what METIS's sectors compute and exchange, for 2 to 256 of them, by size of event.

    BIGTRK_TESTDATA=... python scripts/scaling/partition_volumes.py [--work FOLDER] [--large GRAPHS]
        [--output FILE] [--quick | --publish]

Event 1000 by the windows that are shipped and by wider ones (0.34 M and 3.0 M edges), and simulated
events in the Open Data Detector of 250,000 hits and of 1.0 M (40 M edges; --large names a folder of
graphs made before, whose first is taken instead). Each is cut once, in 256 parts, which merge
into fewer. Cuts are kept under --work, and a script that is started again goes on from
there. Nothing is timed. The last line is one JSON object: by event the shares of cut edges and halo
rows in 8 parts, and that of the halo rows of 64 parts which cross hosts of 4 ranks, in the tree's
order and placed at random.

Shapes: N nodes, E edges, P parts of the finest cut, K parts that it is merged into, H halo rows of
the finest cut. P and K are powers of two: part p is in part `p * K // P`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.disk.files import read_json, write_atomically, write_json
from bigtrk.errors import InputError
from bigtrk.graphs.storage.event_folder import GraphFolder
from partition.partitioners import adjacency, bisect
from scripts.results import CHECKOUT, Results, add_options

FINEST, SEED = 256, 0
QUICK_FINEST = 16
Integers = NDArray[np.integer[Any]]
HOSTS = (4, 8)  # ranks on a host
DRAWS = 20  # random placements, whose mean is taken
# A placement: for K parts on hosts of R ranks, the host of each part, [K].
PLACEMENTS: dict[str, Callable[[int, int, np.random.Generator], Integers]] = {
    # Rank p has part p, and hosts have ranks in a row: neighbours in METIS's tree share a host.
    "tree": lambda parts, ranks, _: np.arange(parts) // ranks,
    # Ranks are dealt out host by host, as srun --distribution=cyclic does.
    "cyclic": lambda parts, ranks, _: np.arange(parts) % (parts // ranks),
    "random": lambda parts, ranks, draw: draw.permutation(parts) // ranks,
}


@dataclass(frozen=True)
class Case:
    """An event to cut: event 1000, or a simulated one of `particles`, and the options that
    its graph is built with.
    """

    name: str
    particles: int | None = None
    options: tuple[str, ...] = ()


CASES = (
    Case("event 1000, shipped windows"),
    Case("event 1000, windows learnt above 0.3 GeV", None, ("--learn-windows", "--pt-min", "0.3")),
    Case("simulated, 250,000 hits", 24_700),
    Case("simulated, 1.0 M hits", 99_000, ("--learn-windows", "--pt-min", "1.6")),
)
QUICK = (Case("simulated, 2,000 hits", 200, ("--learn-windows", "--pt-min", "0.2")),)


@dataclass(frozen=True)
class FinestCut:
    """A cut in P parts, from which those in fewer parts are counted without its edges.

    part [N]; edges [P, P]: edges by the parts of their source and destination; receiver [H] and
    node [H]: the part that has a row in its halo, and the row's node, each pair once.
    """

    part: Integers
    edges: Integers
    receiver: Integers
    node: Integers

    @property
    def parts(self) -> int:
        return len(self.edges)


def finest_cut(edge_index: Integers, part: Integers, parts: int) -> FinestCut:
    """Counts the edges between parts and lists the halo rows: [2, E], [N], P."""
    source, destination = part[edge_index]
    edges = np.bincount(source * parts + destination, minlength=parts**2).reshape(parts, parts)
    crossing = source != destination
    # Either end of a cut edge is in the halo of the other's part.
    receiver = np.concatenate([destination[crossing], source[crossing]]).astype(np.int64)
    node = np.concatenate([edge_index[0, crossing], edge_index[1, crossing]])
    pairs = np.unique(receiver * len(part) + node)
    return FinestCut(part, edges, pairs // len(part), pairs % len(part))


def exchanged_rows(cut: FinestCut, parts: int) -> Integers:
    """Counts the rows that each of K parts sends to each other: [sender, receiver], [K, K]."""
    owner = cut.part[cut.node].astype(np.int64) * parts // cut.parts
    receiver = cut.receiver * parts // cut.parts
    outside = owner != receiver
    # Parts that are merged may have the same row in their halos.
    _, once = np.unique((receiver * len(cut.part) + cut.node)[outside], return_index=True)
    pairs = owner[outside][once] * parts + receiver[outside][once]
    return np.bincount(pairs, minlength=parts**2).reshape(parts, parts)


def volumes(cut: FinestCut, parts: int) -> dict[str, Any]:
    """Counts what K parts compute and exchange.

    cut_edges: of different parts; largest_edges: those of the part that computes the most, cut ones
    included. halo_rows: of all parts; largest_halo: of one part. neighbours: parts that a part
    exchanges rows with, mean and most. hosts: by ranks on a host and placement, `between_hosts`.
    """
    fold = cut.parts // parts
    edges = cut.edges.reshape(parts, fold, parts, fold).sum((1, 3))
    inside, rows = np.diag(edges), exchanged_rows(cut, parts)
    neighbours = ((rows + rows.T) > 0).sum(0)
    return {
        "parts": parts,
        "cut_edges": int(edges.sum() - inside.sum()),
        "largest_edges": int((edges.sum(0) + edges.sum(1) - inside).max()),
        "halo_rows": int(rows.sum()),
        "largest_halo": int(rows.sum(0).max()),
        "neighbours": {"mean": float(neighbours.mean()), "most": int(neighbours.max())},
        "hosts": {str(ranks): placed(rows, ranks) for ranks in HOSTS if parts > ranks},
    }


def placed(rows: Integers, ranks: int) -> dict[str, dict[str, float]]:
    """Counts rows between hosts of `ranks`, by placement; means over draws."""
    draw = np.random.default_rng(0)
    found = {}
    for name, place in PLACEMENTS.items():
        draws = DRAWS if name == "random" else 1
        each = [between_hosts(rows, place(len(rows), ranks, draw)) for _ in range(draws)]
        found[name] = {key: float(np.mean([one[key] for one in each])) for key in each[0]}
    return found


def between_hosts(rows: Integers, host: Integers) -> dict[str, int]:
    """Counts what crosses hosts, given rows [sender, receiver] and the host of each part.

    rows: of all parts; largest: those that one part receives; messages: the most parts on other
    hosts that a part exchanges rows with.
    """
    crossing = np.where(host[:, None] != host[None, :], rows, 0)
    return {
        "rows": int(crossing.sum()),
        "largest": int(crossing.sum(0).max()),
        "messages": int(((crossing + crossing.T) > 0).sum(0).max()),
    }


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
    """Runs a command of bigtrk; raises CalledProcessError if it failed."""
    say(f"$ bigtrk {' '.join(arguments)}", style="bold")
    subprocess.run([sys.executable, "-m", "bigtrk", *arguments], check=True, cwd=CHECKOUT)


def counted(graphs: Path, parts: int, kept: Path) -> dict[str, Any]:
    """Counts the volumes of the first graph of a folder, in up to `parts` parts; the parts of its
    nodes are kept as files.
    """
    folder = GraphFolder(graphs)
    event = next(iter(folder.events))
    # Half the bytes of what is stored, and none of the features.
    edge_index = folder.read(event).edge_index.numpy().astype(np.int32)
    nodes = folder.record(event)["nodes"]
    finest = finest_cut(edge_index, parts_of(edge_index, nodes, parts, kept), parts)
    powers = [1 << i for i in range(1, parts.bit_length())]
    return {
        "nodes": nodes,
        "edges": edge_index.shape[1],
        "merged": [volumes(finest, k) for k in powers],
    }


def parts_of(edge_index: Integers, nodes: int, parts: int, kept: Path) -> Integers:
    """Returns METIS's part of each node, [N], cut unless it is kept."""
    path = kept / f"{parts}.int32"
    if not path.exists():
        say(f"METIS cuts {edge_index.shape[1]:,} edges in {parts} parts")
        symmetric = adjacency(edge_index.astype(np.int64, copy=False), nodes)
        write_atomically(path, bisect(symmetric, parts, SEED).astype(np.int32).tofile)
    return np.fromfile(path, dtype=np.int32)


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
    add_options(parser, quick="a small event, in up to 16 parts")
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
