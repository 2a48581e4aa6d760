"""The peak memory that `bigtrk plan` predicts, against runs on ranks of their own."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bigtrk.config import load_settings
from bigtrk.cost.machine_constants import CPU, MachineConstants
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.parallel.ranks import Ranks
from bigtrk.planning.calibration.calibrate import measure_memory
from bigtrk.planning.calibration.synthetic import synthetic_graph
from bigtrk.planning.check import check
from bigtrk.studies.launch import torchrun_command, torchrun_environment
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration
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
    graph = synthetic_graph(NODES, EDGES, Configuration())
    names = [f"event{i}" for i in range(EVENTS)]
    for name in names:
        write_graph(folder, replace(graph, name=name), {"nodes": NODES, "edges": EDGES})
    write_manifest(folder, "graphs", {}, names)
    return folder


@pytest.fixture(scope="module")
def machine() -> MachineConstants:
    """The size of a process is a machine's own: 350 to 440 MiB."""
    return measure_memory(CPU)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_wide_model_takes_the_memory_that_is_planned(
    engine: str, ranks: int, graphs: Path, tmp_path: Path, machine: MachineConstants
) -> None:
    settings = [f"data.train=[{graphs}]", "training.epochs=2", f"training.events_per_step={EVENTS}"]
    settings += [f"run.folder={tmp_path / 'run'}", *WIDE, *ENGINES[engine]]
    command = torchrun_command(ranks, CHECKOUT / "bigtrk" / "train.py", settings)
    done = subprocess.run(
        command,
        env=torchrun_environment(ranks),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    checked = check(tmp_path / "run", machine, None)
    assert abs(checked.memory_error) < TOLERANCE, checked


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
