"""A few training steps on synthetic graphs, measured in a process of its own.

`python -m bigtrk.planning.warmup CASE` prints one JSON object. It is a process of its own, since
peak memory is that of a process's whole life.
"""

import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass

import torch

from bigtrk.cost.machine_constants import CPU
from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import SCALES
from bigtrk.graphs.sector import Sector, whole_sector
from bigtrk.parallel.engines.build import make_engine
from bigtrk.parallel.host import configure_process
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import as_stored
from bigtrk.parallel.world import make_world
from bigtrk.training.costs import make_cost
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.data.loader import Loader
from bigtrk.training.model_files import build_model
from bigtrk.training.monitoring.usage import peak_memory
from bigtrk.training.settings import Configuration
from bigtrk.training.step import StepRunner


@dataclass(frozen=True)
class Case:
    """A model and a graph to train it on for `steps` steps after a warm-up step; engine: "ddp", or
    the name of a DeepSpeed file.
    """

    nodes: int
    edges: int
    hidden: int
    layers: int = 4
    recompute: str = "chunk"
    precision: str = "fp32"
    steps: int = 4
    engine: str = "ddp"

    def configuration(self) -> Configuration:
        names = ("hidden", "layers", "recompute", "precision")
        model = {name: getattr(self, name) for name in names}
        engine = {} if self.engine == "ddp" else {"name": "deepspeed", "ds_config": self.engine}
        return Configuration.model_validate({"model": model, "engine": engine})


@dataclass(frozen=True)
class Measured:
    """A case's measurements. seconds: those of the median step. peak_bytes: as a run records it."""

    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class _Synthetic(EventSource):
    """An event that is made when it is read."""

    graph: EventGraph

    def read(self, part: int, parts: int) -> Sector:
        assert (part, parts) == (0, 1), "synthetic events are whole"
        return whole_sector(self.graph)


def synthetic_graph(nodes: int, edges: int, configuration: Configuration) -> EventGraph:
    """Makes a graph whose edges, like those of detector layers, join rows near each other."""
    data, generator = configuration.data, torch.Generator().manual_seed(0)
    destination = torch.randint(nodes, (edges,), generator=generator)
    back = torch.randint(1, max(2, nodes // 10), (edges,), generator=generator)
    return EventGraph(
        name="synthetic",
        node_feature_names=tuple(data.node_features),
        edge_feature_names=tuple(data.edge_features),
        node_features=_values(data.node_features, nodes, generator),
        edge_index=torch.stack([(destination - back).clamp(min=0), destination]),
        edge_features=_values(data.edge_features, edges, generator),
        y=torch.rand(edges, generator=generator) < 0.3,
    )


def _values(names: list[str], rows: int, generator: torch.Generator) -> torch.Tensor:
    scales = torch.tensor([SCALES[name] for name in names])
    return torch.randn(rows, len(names), generator=generator) * scales


def measure(case: Case, ranks: Ranks) -> Measured:
    """Trains as a run does, with the same engine, step and loader."""
    configuration, world = case.configuration(), make_world(ranks)
    stopwatch = world.stopwatch
    graph = synthetic_graph(case.nodes, case.edges, configuration)
    source = _Synthetic("synthetic", 1, folder=None, graph=graph)  # type: ignore[arg-type]
    model = build_model(configuration).to(ranks.device)
    engine, _ = make_engine(configuration.engine, model, configuration.optimizer, stopwatch)
    runner = StepRunner(engine, configuration.training, world)
    loader = Loader(BatchMaker(configuration, world).of([source]), world)
    seconds = []
    start = stopwatch.now()
    for batches in loader.steps([as_stored([(1, case.edges)], 1).route([0])] * (case.steps + 1)):
        runner.run([0], batches, lr=1e-3)
        seconds.append(stopwatch.now() - start)
        start = stopwatch.now()
    return Measured(statistics.median(seconds[1:]), peak_memory(ranks.device))


def measure_apart(case: Case, local_size: int = 1, timeout: float = 300) -> Measured:
    """Measures in a process of its own, with the cores of one of `local_size` ranks of this host.

    Raises:
        InputError: the process failed, for instance when memory ran out.
    """
    own = [json.dumps(asdict(case)), str(local_size)]
    command = [sys.executable, "-m", "bigtrk.planning.warmup", *own]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["killed, perhaps out of memory"]
        raise InputError(f"warm-up {asdict(case)}: {reason[0]}; free memory, then calibrate again")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measures the case given as JSON on the cores of one of the ranks given; prints the result."""
    case = Case(**json.loads(sys.argv[1]))
    ranks = Ranks(0, 1, 0, local_size=int(sys.argv[2]), launcher="python")
    configure_process(ranks)
    # A run's imports are part of its memory: its own modules, and those that predict its costs.
    import bigtrk.training.run  # noqa: F401

    make_cost(case.configuration(), 1, 1, CPU).footprint(cut=False)
    with process_group(ranks):
        print(json.dumps(asdict(measure(case, ranks))))


if __name__ == "__main__":
    main()
