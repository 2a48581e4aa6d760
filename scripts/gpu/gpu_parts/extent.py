"""The extent of a part of the suite: on a card, or as a walk through it on a CPU."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from bigtrk.disk.files import write_atomically
from bigtrk.graphs.event_graph import edge_order
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.models.edges import fused
from scripts.bench.bench_hot_path import SIZES
from scripts.bench.bench_hot_path import graph as drawn_graph
from scripts.scaling.partition_volumes import CASES, Case, graphs_of
from tests.models.fused import usable_everywhere
from tests.models.interpreted import mended

Row = dict[str, Any]
# Graphs by name: how they are made; nodes and edges of those that are drawn.
EVENT_1000, CTD = "event 1000", "CTD"
MADE = {
    EVENT_1000: CASES[1],
    CTD: Case("simulated, CTD size", 30_700, ("--learn-windows", "--pt-min", "1.0")),
}
SMALL = {"1 k": (50, 1_000), "50 k": (2_500, 50_000), "300 k": (15_000, 300_000)}
_DRAWN = {**SMALL, EVENT_1000: SIZES["event 1000, 0.3 GeV"]}
_DRY = 20, 90
WIDTHS = 64, 128


@dataclass(frozen=True)
class Edges:
    """The edges of a graph [2, E], its number of nodes, and where it comes from."""

    edge_index: Tensor
    n_nodes: int
    origin: str


@dataclass(frozen=True)
class Extent:
    """dry: nothing but small sizes on the CPU, in Triton's interpreter. work: graphs are kept there
    from one part to the next.
    """

    dry: bool
    work: Path

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.dry else "cuda")

    @property
    def widths(self) -> tuple[int, ...]:
        return (16,) if self.dry else WIDTHS

    @property
    def layers(self) -> int:
        return 2 if self.dry else 8

    def graph(self, name: str) -> Edges:
        """Returns event 1000's graph, where BIGTRK_TESTDATA has the event, the simulated one of CTD
        size, or a drawn one; a small one in a dry run.
        """
        kept = self.work / f"{name.replace(' ', '_')}.npz"
        is_made = name == CTD or (name == EVENT_1000 and os.environ.get("BIGTRK_TESTDATA"))
        if self.dry or not (is_made or kept.exists()):
            size = _DRY if self.dry else _DRAWN[name]
            return Edges(drawn_graph(*size)[2], size[0], "drawn")
        if not kept.exists():
            write_atomically(kept, partial(_write, GraphFolder(graphs_of(MADE[name], self.work))))
        with np.load(kept) as found:
            edge_index = torch.from_numpy(found["edges"]).long()
            return Edges(edge_index, int(found["n_nodes"]), MADE[name].name)

    def seconds(self, call: Callable[[], object]) -> float:
        """Returns the median by the device's clock, after calls that compile and fill caches: of 3
        to 10, which take two seconds together if they can.
        """
        if self.dry:
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        for _ in range(2):
            call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        repeats = int(np.clip(2.0 / (time.perf_counter() - start), 3, 10))
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
        for start_mark, end in marks:
            start_mark.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return float(statistics.median(begin.elapsed_time(end) for begin, end in marks)) / 1e3

    @contextmanager
    def as_on_card(self) -> Iterator[None]:
        """Computes with the fused passes, which a dry run interprets."""
        if not self.dry:
            yield
            return
        with patch.object(fused, "usable", usable_everywhere), mended():
            yield


def _write(folder: GraphFolder, path: Path) -> None:
    """Writes what is read of a folder's graph, its edges in the order that a training has them in:
    reading it takes a second, making it half a minute.
    """
    event = next(iter(folder.events))
    edges, n_nodes = folder.read(event).edge_index, folder.record(event)["nodes"]
    ordered = edges[:, edge_order(edges, n_nodes)].numpy().astype(np.int32)
    with path.open("wb") as file:
        np.savez_compressed(file, edges=ordered, n_nodes=n_nodes)
