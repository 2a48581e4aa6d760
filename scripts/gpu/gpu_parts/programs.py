"""Parts that are programs: the tests of GPUs, and trainings, one with the optimizer on the host."""

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import torch

from bigtrk.console import say
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import EDGE_FEATURES, NODE_FEATURES
from bigtrk.graphs.storage.event_folder import write_manifest
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.records.run_folder import Run, read_run
from scripts.gpu.gpu_parts.extent import EVENT_1000, Extent, Row
from scripts.gpu.gpu_parts.steps import OURS, by_turns
from scripts.results import CHECKOUT
from scripts.scaling.partition_volumes import bigtrk

QUICK, SLOW = "gpu and not slow", "gpu and slow"
# Without a card those of tests/gpu are skipped, and one of the interpreted ones stands for all.
_DRY_TESTS = {
    QUICK: ("tests/gpu", "tests/models/test_fused.py::test_the_same_bits_twice"),
    SLOW: ("tests/gpu", "tests/models/test_nodes.py"),
}
COPIES, EPOCHS = 8, 3  # of an event; the first epoch compiles
FIGURES = "edges_per_second", "over_step"  # of a training that reads


def tests(marks: str, extent: Extent) -> Row:
    """Runs the tests with these marks, of those that compile every kernel the card's own: says
    whether all passed, and pytest's last line.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-m", marks]
    if extent.dry:
        command += _DRY_TESTS[marks]
    else:
        own = "".join(map(str, torch.cuda.get_device_capability()))
        command += ["tests/gpu", "tests/models", "-k", f"not every_kernel or -{own}]"]
        # Their time is the compiler's. If it is installed, pytest-benchmark warns of processes.
        command += ["-n", "16", "-p", "no:benchmark"]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    for line in lines if done.returncode else ():
        say(line)
    return {"passed": not done.returncode, "summary": (lines or [""])[-1]}


def training(extent: Extent) -> Row:
    """Trains on copies of event 1000's graph, which it reads, and times the step alone."""
    edges, hidden = extent.graph(EVENT_1000), extent.widths[0]
    (alone,) = by_turns(OURS[:1], hidden, 1, edges, extent)
    n_edges = edges.edge_index.shape[1]
    x = torch.randn(edges.n_nodes, len(NODE_FEATURES))
    of_edges, y = torch.randn(n_edges, len(EDGE_FEATURES)), torch.arange(n_edges) % 3 == 0
    drawn = NODE_FEATURES, EDGE_FEATURES, x, edges.edge_index, of_edges, y
    with tempfile.TemporaryDirectory(prefix="bigtrk-training-", dir=extent.work) as name:
        folder, events = Path(name), [f"event{number}" for number in range(COPIES)]
        graphs = folder / "graphs"
        graphs.mkdir()
        for event in events:
            write_graph(graphs, EventGraph(event, *drawn), {"purity": 1 / 3})
        write_manifest(graphs, "graphs", {}, events)
        size = f"model.hidden={hidden}", f"model.layers={extent.layers}"
        run = trained(folder, *size, "model.precision=bf16", f"training.epochs={EPOCHS}")
    rate = median(epoch.edges_per_second for epoch in run.epochs[1:])
    over = alone["seconds"] and n_edges / rate / alone["seconds"]
    found = dict(zip(FIGURES, (rate, over), strict=True))
    return {"origin": edges.origin, "edges": n_edges, "alone": alone, **found}


def offload(extent: Extent) -> Row:
    """Trains under ZeRO-3 with parameters and optimizer on the host, on one card."""
    with tempfile.TemporaryDirectory(prefix="bigtrk-offload-", dir=extent.work) as name:
        folder = Path(name)
        events = ("--events", "2", "--particles", "50" if extent.dry else "5000")
        bigtrk("simulate", str(folder / "events"), *events)
        bigtrk("build", str(folder / "events"), str(folder / "graphs"))
        width = "8" if extent.dry else "256"
        engine = ("engine.name=deepspeed", "engine.ds_config=zero3_offload")
        sizes = (f"model.hidden={width}", "model.layers=2", "training.epochs=2")
        run = trained(folder, *engine, *sizes)
    last = run.epochs[-1]
    return {
        "hidden": int(width),
        "parameters": run.record.parameters,
        "batch_seconds": last.batch_seconds,
        "peak_bytes": last.peak_memory_bytes,
        "losses": [epoch.train_loss for epoch in run.epochs],
    }


def trained(folder: Path, *settings: str) -> Run:
    """Trains on the graphs of a folder, and reads the run."""
    bigtrk("train", f"data.train=[{folder}/graphs]", f"run.folder={folder}/run", *settings)
    return read_run(folder / "run")
