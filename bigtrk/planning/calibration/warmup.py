"""Training steps on synthetic graphs, measured in processes of their own.

`python -m bigtrk.planning.calibration.warmup TASK OUTPUT` is one of them: it measures the cases of
the file TASK one after another; the first rank writes what all found to OUTPUT.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from bigtrk.cost.links import Link
from bigtrk.cost.machine_constants import CPU
from bigtrk.disk.files import read_json, write_json
from bigtrk.errors import InputError, why_it_failed
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.parallel.collectives import gather_items, on_first_rank
from bigtrk.parallel.engines.build import make_engine
from bigtrk.parallel.host import configure_process, share_heap
from bigtrk.parallel.page_pool import give_back_pages, reused_pages
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks, discover
from bigtrk.parallel.routing import MicroStep, as_stored, even_cut
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.parallel.world import World, make_world
from bigtrk.planning.calibration.fitting import Sample
from bigtrk.planning.calibration.network import measure_links
from bigtrk.planning.calibration.synthetic import synthetic_graph
from bigtrk.planning.calibration.warmup_cases import Case
from bigtrk.process.heap import give_back_freed_memory
from bigtrk.training.costs import make_cost
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import EventSource, open_events
from bigtrk.training.data.loader import Loader
from bigtrk.training.model_files import build_model
from bigtrk.training.step import StepRunner
from partition.cutting import CutSettings, cut_event
from partition.partitioners import Method

_NAME = "synthetic"
_WAIT = 5400  # s, for all cases of a group of processes: some 800 on two cores of an AMD EPYC


@dataclass(frozen=True)
class Measured:
    """Holds what a group of processes found: a sample per case, and the link between them (None of
    one process). again: the seconds of each case when it was measured last, over those when it was
    first; empty where it was measured once.
    """

    samples: list[Sample]
    link: Link | None
    again: tuple[float, ...] = ()


def measure_apart(cases: Sequence[Case], ranks: int = 1) -> Measured:
    """Measures cases, one after another, on `ranks` processes that share this host.

    Raises:
        InputError: a process failed, for instance when memory ran out.
    """
    with tempfile.TemporaryDirectory(prefix="bigtrk-warmup-") as folder:
        task, output = Path(folder) / "task.json", Path(folder) / "found.json"
        write_json(task, [asdict(case) for case in cases])
        command = [
            sys.executable,
            "-m",
            "bigtrk.planning.calibration.warmup",
            str(task),
            str(output),
        ]
        port = _free_port()
        processes = [
            subprocess.Popen(
                command,
                env=_environment(rank, ranks, port),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        _wait_for(processes)
        found = read_json(output)
    link = None if found["link"] is None else Link.model_validate(found["link"])
    samples = [Sample(**{**one, "case": Case(**one["case"])}) for one in found["samples"]]
    return Measured(samples, link)


def _wait_for(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Waits for all; ends the others when one fails.

    Raises:
        InputError: one failed, or takes too long.
    """
    try:
        for process in processes:
            said = process.communicate(timeout=_WAIT)[1]
            if process.returncode:
                reason = why_it_failed(process.returncode, said)
                raise InputError(f"warm-up: {reason}; free memory, then calibrate again")
    except subprocess.TimeoutExpired:
        raise InputError(
            f"warm-up: took longer than {_WAIT} s; end what else runs here, then calibrate again"
        ) from None
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Makes the environment of a rank; what a launcher left here is not for it."""
    launched = "TORCHELASTIC_RUN_ID" in os.environ
    dropped = {"OMP_NUM_THREADS"} if launched else set()
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith(("TORCHELASTIC_", "SLURM_"))
    }
    own = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {**kept, **{name: str(value) for name, value in {**own, **place}.items()}}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def measure(cases: Sequence[Case], ranks: Ranks, folder: Path) -> list[Sample]:
    """Measures all cases in turn. Collective."""
    shared = {even_cut(case.parts, ranks.world_size).ranks for case in cases}
    world = make_world(ranks, shared)
    trained = [_train(case, world, folder) for case in cases]
    samples = []
    for case, (steps, read) in zip(cases, trained, strict=True):
        mine = float(np.median(steps))  # as of a run, of which it is predicted
        found = gather_items((mine, world.memory.n_bytes, read))
        slowest, peak, read = (max(one) for one in zip(*found, strict=True))
        samples.append(Sample(case, ranks.world_size, float(slowest), int(peak), float(read)))
    return samples


def _train(case: Case, world: World, folder: Path) -> tuple[list[float], float]:
    """Trains as a run does, with the same files, loader, engine and step; returns the seconds of
    all steps but the first, and those of reading for an accelerator. Collective.
    """
    ranks = world.ranks
    configuration = case.configuration(ranks.world_size)
    source = on_first_rank(lambda: _written(case, folder))
    # A run reads graphs that others made: what making them leaves here was taken for a process's.
    give_back_pages()
    give_back_freed_memory()
    stopwatch, numbers = world.stopwatch, list(range(configuration.training.events_per_step))
    model = build_model(configuration).to(ranks.device)
    engine, _ = make_engine(configuration.engine, model, configuration.optimizer, stopwatch)
    runner = StepRunner(engine, configuration.training, world)
    loader = Loader(BatchMaker(configuration, world).of([source] * len(numbers)), world)
    stored = [(case.parts, case.edges)] * len(numbers)
    route = as_stored(stored, ranks.world_size, several=True).route(numbers)
    seconds = []
    start = stopwatch.now()
    for batches in loader.steps([route] * (case.steps + 1)):
        runner.run(numbers, batches, lr=1e-3)
        seconds.append(stopwatch.now() - start)
        start = stopwatch.now()
    reads = world.device.type == "cuda"
    return seconds[1:], _read_seconds(loader, route, stopwatch) if reads else 0.0


def _read_seconds(loader: Loader, route: Sequence[MicroStep], stopwatch: Stopwatch) -> float:
    start = stopwatch.now()
    loader.load(route)
    return stopwatch.now() - start


def _written(case: Case, folder: Path) -> EventSource:
    """Writes the graph of a case, or its sectors, once, and opens it."""
    path = folder / f"{case.nodes}-{case.edges}"
    if not path.exists():
        graph: EventGraph = synthetic_graph(case.nodes, case.edges, case.configuration())
        path.mkdir()
        counts = {"nodes": case.nodes, "edges": case.edges}
        write_graph(path, replace(graph, name=_NAME), counts)
        write_manifest(path, "graphs", {}, [_NAME])
    return open_events([path if case.parts == 1 else _sectors(path, case.parts)])[0]


def _sectors(graphs: Path, parts: int) -> Path:
    """Cuts a graph, once; returns the folder of its sectors."""
    path = graphs.with_name(f"{graphs.name}-{parts}")
    if not path.exists():
        path.mkdir()
        cut_event(graphs, path, _NAME, CutSettings(parts, None, Method.METIS, seed=0))
        write_manifest(path, "sectors", {}, [_NAME])
    return path


def main() -> None:
    """Measures the cases of a file as one of the ranks that the environment tells."""
    task, output = Path(sys.argv[1]), Path(sys.argv[2])
    cases, ranks = [Case(**case) for case in read_json(task)], discover()
    configure_process(ranks)
    share_heap()
    # A run's imports are part of its memory: its own modules, and those that predict its costs.
    import bigtrk.training.run  # noqa: F401

    make_cost(cases[0].configuration(), 1, 1, CPU).footprint(cut=False)
    with reused_pages(ranks.device), process_group(ranks):
        samples = measure(cases, ranks, task.parent)
        # After the cases, whose peaks would have its messages in them: 22 MiB.
        link = measure_links(ranks).within if ranks.world_size > 1 else None
        if ranks.is_first:
            found = {"samples": [asdict(sample) for sample in samples]}
            write_json(output, {**found, "link": link and link.model_dump()})


if __name__ == "__main__":
    main()
