"""The peak memory that `bigtrk plan` predicts, against runs on ranks of their own."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bigtrk.config import load_settings
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import CPU, Machine
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import read_run
from bigtrk.studies.launch import torchrun_command, torchrun_environment
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import random_graph
from tests.distributed.held_memory import measure
from tests.distributed.ranks import run_ranks
from tests.programs import CHECKOUT

NODES, EDGES, EVENTS = 600, 2000, 4
# 16 M weights: several times as much memory as such a small event's activations.
WIDE = ("model.hidden=512", "model.layers=4")
# Of the whole process. On 4 ranks DDP was 9 % and ZeRO-3 28 % higher than before buffers counted.
# They are slow tests, for an idle machine: beside other work glibc and gloo hold freed blocks for
# longer, and ZeRO-3 on 4 ranks that share 2 cores took 5 to 16 % more than planned, not 3 to 5 %.
TOLERANCE = 0.08

ENGINES = {
    "DDP": ("engine.name=ddp",),
    "coalesced": ("engine.name=ddp", "engine.coalesced=true"),
    "FSDP2": ("engine.name=fsdp2",),
    **{
        f"ZeRO-{stage}": ("engine.name=deepspeed", f"engine.ds_config=zero{stage}")
        for stage in range(4)
    },
}
SHARDED = ("DDP", "FSDP2", "ZeRO-1", "ZeRO-2", "ZeRO-3")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    made = [random_graph(seed, NODES, EDGES) for seed in range(EVENTS)]
    for graph in made:
        write_graph(folder, graph, {"nodes": NODES, "edges": EDGES})
    write_manifest(folder, "graphs", {}, [graph.name for graph in made])
    return folder


def recorded_and_counted(
    ranks: int, machine: Machine, graphs: Path, run: Path, *settings: str
) -> tuple[int, float]:
    """Trains; returns the peak bytes of a rank as recorded and as counted."""
    settings += (f"data.train=[{graphs}]", "training.epochs=2", f"run.folder={run}")
    settings += ("data.validation=0", f"training.events_per_step={EVENTS}")
    command = torchrun_command(ranks, CHECKOUT / "bigtrk" / "train.py", settings)
    environment = torchrun_environment(ranks)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = load_settings(Configuration, None, settings)
    cost = make_cost(found, ranks, ranks, machine, events=EVENTS)
    peaks = [epoch.peak_memory_bytes or 0 for epoch in read_run(run).epochs]
    return max(peaks), cost.memory(EventSize(NODES, EDGES), 1, 1).total


@pytest.fixture(scope="module")
def machine(graphs: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The size of a process is a machine's own: 350 to 440 MiB."""
    run, small = tmp_path_factory.mktemp("small") / "run", ("model.hidden=8", "model.layers=1")
    recorded, counted = recorded_and_counted(1, CPU, graphs, run, *small)
    return replace(CPU, process_bytes=round(recorded - counted) + CPU.process_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_wide_model_takes_the_memory_that_is_planned(
    engine: str, ranks: int, graphs: Path, tmp_path: Path, machine: Machine
) -> None:
    settings = (*WIDE, *ENGINES[engine])
    recorded, counted = recorded_and_counted(ranks, machine, graphs, tmp_path / "run", *settings)
    assert counted == pytest.approx(recorded, rel=TOLERANCE)


def configuration(engine: str) -> Configuration:
    return load_settings(Configuration, None, ["model.hidden=64", *ENGINES[engine]])


def measure_engines(ranks: Ranks) -> dict[str, dict[str, int]]:
    return {engine: measure(ranks, configuration(engine))["bytes"] for engine in SHARDED}


# Slow: of three it takes another 20 s.
@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_engines_hold_what_is_planned(world_size: int) -> None:
    """The storages of living engines after a backward pass; 4 %, since padding differs."""
    held = run_ranks(world_size, measure_engines)[0]
    for engine in SHARDED:
        cost = make_cost(configuration(engine), world_size, world_size, CPU)
        weights = cost.footprint(cut=False).weights
        planned = cost.sharding.held(weights, on_host=True)
        levers = ("optimizer", *(() if cost.sharding.lockstep else ("parameters",)))
        for lever in levers:
            numbers = held[engine][lever] / 4
            assert numbers == pytest.approx(getattr(planned, lever), rel=0.04), (engine, lever)
