"""The runs that plan_accuracy.py draws by seed, and the events they train on."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from bigtrk.config import load_settings
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import CPU
from bigtrk.cost.model import CostModel
from bigtrk.errors import InputError
from bigtrk.graphs.storage.graph_folder import GraphFolder, write_graph
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.parallel.routing import WHOLE, Cut
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.routers import GIB, FittingCuts

CHECKOUT = Path(__file__).parents[2]
PARTS = 4
SPILLED = "spilled"
_PER_STEP = (1, 1, 1, 2, 2, 4)  # events of a step are drawn from these
ENGINES = {
    "DDP": (),
    "FSDP2": ("engine.name=fsdp2",),
    "ZeRO-1": ("engine.name=deepspeed", "engine.ds_config=zero1"),
    "ZeRO-3": ("engine.name=deepspeed", "engine.ds_config=zero3"),
}
FILES, SEVERAL = "edges in files", "several sectors on a rank"
# At least so many runs of every draw have each of these.
LEAST = 2
COVERED = (
    FILES,
    SEVERAL,
    "sampling.method=shadow",
    "sampling.method=sectors",
    "model.name=attention",
    "model.name=mlp",
    *ENGINES,
)
_WAYS = {
    "interaction": ("none", "layer", "chunk"),
    "attention": ("none", "layer"),
    "mlp": ("none", "layer", "chunk"),
}
_WIDTHS = (16, 24, 32, 48, 64, 96, 128, 256)
# Bounds of a run, by the constants of a machine that is not calibrated, which steps exceeded
# twofold at most: draws depend on no measurement. Within 30 s too few runs of 3 M edges are left.
_SECONDS, _SHORTEST, _BYTES = 60.0, 0.02, 14e9
# A run has as many epochs as take so long, by the same constants: of runs of a second or two, a
# moment's other work on a host moved the median step by a third, either way.
_LASTS, _MOST_EPOCHS = 8.0, 40
# By how much more memory than is predicted without edges a run has that spills them, and by how
# much more than that all of them would need: machines differ by less.
_ROOM = 1.25
_Laid = tuple[Configuration, CostModel, EventSize, Cut]  # a run's event, over its ranks


@dataclass(frozen=True)
class Events:
    """Alike events to train on: simulated with so many particles, or copies of event 1000 built
    with these arguments. nodes, edges: about as many. cut: there are sectors of them.
    """

    name: str
    nodes: int
    edges: int
    copies: int
    runs: int
    particles: int = 0
    build: tuple[str, ...] = ()
    cut: bool = True


EVENTS = (
    Events("5 k edges", 6_800, 4_700, copies=24, runs=7, particles=700),
    Events("14 k edges", 16_000, 14_000, copies=24, runs=7, particles=1600),
    Events("61 k edges", 40_000, 61_000, copies=16, runs=8, particles=4000),
    Events("336 k edges", 104_000, 336_000, copies=8, runs=8),
    Events("3 M edges", 104_000, 2_985_000, 4, 4, build=("--learn-windows", "--pt-min", "0.3")),
)


@dataclass(frozen=True)
class Job:
    """A training run: its events, whole or in sectors, its number of ranks and its settings.
    steps: of an epoch. memory_gib: what a rank fills before edges go to files; None where they
    never do.
    """

    events: str
    sectors: bool
    ranks: int
    settings: tuple[str, ...]
    steps: int
    memory_gib: float | None = None
    epochs: int = 1

    @property
    def name(self) -> str:
        where = f"{PARTS} sectors" if self.sectors else "whole"
        files = [f"files beyond {self.memory_gib} GiB"] if self.memory_gib else []
        return ", ".join([self.events, where, f"{self.ranks} rank(s)", *self.settings, *files])

    def configuration(self, work: Path) -> Configuration:
        """Returns the settings of a run in `work`."""
        return load_settings(Configuration, None, self.arguments(work))

    def arguments(self, work: Path) -> list[str]:
        """Lists the overrides of train.py."""
        folder = work / ("sectors" if self.sectors else "graphs") / self.events.replace(" ", "_")
        fixed = ["data.validation=0", "training.routing=stored", f"training.epochs={self.epochs}"]
        files = [f"training.spill={work / SPILLED}", f"training.memory_gib={self.memory_gib}"]
        return [
            f"data.train=[{folder}]",
            *fixed,
            *self.settings,
            *(files if self.memory_gib else []),
        ]


def draw(seed: int) -> list[Job]:
    """Draws the runs of a seed: the same on any machine. What fewer than LEAST of them cover takes
    the places of some that no coverage needs; the others stay as they were drawn.
    """
    generator = random.Random(seed)
    jobs = [job for events in EVENTS for job in _drawn(events, generator)]
    for thing in COVERED:
        while coverage(jobs)[thing] < LEAST:
            _replace_one(jobs, thing, generator)
    return [_lasting(job) for job in jobs]


def _lasting(job: Job) -> Job:
    seconds = job.steps * _step_seconds(job, _laid(job, _events_of(job)))
    return replace(job, epochs=min(int(_LASTS / seconds) + 1, _MOST_EPOCHS))


def _events_of(job: Job) -> Events:
    [events] = [one for one in EVENTS if one.name == job.events]
    return events


def _replace_one(jobs: list[Job], thing: str, generator: random.Random) -> None:
    """Replaces one of `jobs` by another on the same events that covers `thing`."""
    spare = _spare(jobs)
    while True:
        place = generator.choice(spare)
        events = _events_of(jobs[place])
        job = any_job(events, generator)
        if thing in covered(job) and job not in jobs and _feasible(job, events):
            jobs[place] = job
            return


def coverage(jobs: Sequence[Job]) -> Counter[str]:
    """Counts the runs that have each of COVERED."""
    return Counter(thing for job in jobs for thing in covered(job))


def covered(job: Job) -> set[str]:
    """Returns what of COVERED a run has."""
    engine = tuple(value for value in job.settings if value.startswith("engine."))
    found = {*job.settings, *(name for name, known in ENGINES.items() if known == engine)}
    if job.memory_gib:
        found.add(FILES)
    sampled = any(value.startswith("sampling.") for value in job.settings)
    if job.sectors and not sampled and job.ranks < PARTS:
        found.add(SEVERAL)
    return found & {*COVERED}


def _spare(jobs: Sequence[Job]) -> list[int]:
    """Lists the places of the runs of whose coverage more than LEAST have each."""
    counts = coverage(jobs)
    return [i for i, job in enumerate(jobs) if all(counts[one] > LEAST for one in covered(job))]


def _drawn(events: Events, generator: random.Random) -> Iterator[Job]:
    known: set[Job] = set()
    while len(known) < events.runs:
        job = any_job(events, generator)
        if job not in known and _feasible(job, events):
            known.add(job)
            yield job


def any_job(events: Events, generator: random.Random) -> Job:
    """Draws a run on these events, whether it fits and ends soon or not."""
    pick = generator.choice
    name, ranks = pick(("interaction", "interaction", "attention", "mlp")), pick((1, 2, 3, 4))
    depth = f"mlp_layers={pick((2, 3, 4))}" if name == "mlp" else f"layers={pick((2, 3, 4, 6, 8))}"
    settings = [f"model.name={name}", f"model.hidden={pick(_WIDTHS)}", f"model.{depth}"]
    settings += [
        f"model.recompute={pick(_WAYS[name])}",
        f"model.precision={pick(('fp32', 'bf16'))}",
    ]
    settings += ENGINES[pick(tuple(ENGINES))]
    method = pick(("none", "none", "none", "none", "sectors", "shadow"))
    per_step = 1 if method == "shadow" else pick(_PER_STEP)
    sectors = method == "sectors" or (method == "none" and pick((False, True)))
    items = events.copies * (PARTS if method == "sectors" else 1)
    if method == "sectors":
        settings.append("sampling.method=sectors")
    if method == "shadow":
        items, batch = 8, -(-events.nodes // 8)
        settings += ["sampling.method=shadow", f"sampling.batch_size={batch}", "data.events=1"]
    if per_step > 1:
        settings.append(f"training.events_per_step={per_step}")
    job = Job(events.name, sectors, ranks, tuple(settings), -(-items // per_step))
    keeps = {"model.name=interaction", "model.recompute=chunk"} <= {*settings} and method == "none"
    return _spilling(job, events, pick((0.0, 0.5))) if keeps and pick((False, True)) else job


def _spilling(job: Job, events: Events, share: float) -> Job:
    """Gives a run memory for this share of the edges between layers, unless all of them might fit
    it.
    """
    _, cost, size, cut = _laid(job, events)
    without = replace(cost, spills_beyond=0.0).memory(size, *cut).total
    edges = replace(cost, spills_beyond=0.0).away_bytes(size, *cut)
    memory = _ROOM * without + share * edges
    if without + edges < _ROOM * memory:
        return job
    return replace(job, memory_gib=round(memory / GIB, 3))


def _laid(job: Job, events: Events) -> _Laid:
    """Lays an event of a run over its ranks, at the costs of a machine that is not calibrated."""
    configuration = job.configuration(Path("work"))
    cost = make_cost(configuration, job.ranks, job.ranks, CPU)
    if job.memory_gib:
        cost = replace(cost, spills_beyond=job.memory_gib * GIB)
    sampled = {"none": 1, "sectors": 1 / PARTS, "shadow": 1 / job.ranks}
    method = configuration.sampling.method
    size = EventSize(events.nodes * sampled[method], events.edges * sampled[method])
    if not job.sectors or method != "none":
        return configuration, cost, size, WHOLE
    size = replace(size, stored=PARTS)
    return configuration, cost, size, FittingCuts(configuration, cost, inf).cuts(PARTS)[0][0]


def _step_seconds(job: Job, laid: _Laid) -> float:
    configuration, cost, size, cut = laid
    rounds = -(-configuration.training.events_per_step * cut.ranks // job.ranks)
    return rounds * cost.seconds(size, *cut) + cost.step_seconds()


def _feasible(job: Job, events: Events) -> bool:
    """Says whether a run ends soon and fits, and has steps to take a median of."""
    laid = _laid(job, events)
    _, cost, size, cut = laid
    seconds = _step_seconds(job, laid)
    fits = job.ranks * cost.memory(size, *cut).total < _BYTES
    return fits and job.steps >= 4 and seconds > _SHORTEST and job.steps * seconds < _SECONDS


def prepare(work: Path, testdata: Path, kinds: Sequence[Events] = EVENTS) -> None:
    """Makes all graphs and sectors under `work` that are not there yet."""
    (work / SPILLED).mkdir(exist_ok=True)
    for events in kinds:
        graphs, sectors = (
            work / kind / events.name.replace(" ", "_") for kind in ("graphs", "sectors")
        )
        if not (graphs / "manifest.json").exists():
            _build(events, graphs, work / "raw", testdata)
        if events.cut and not (sectors / "manifest.json").exists():
            _quietly("partition", str(graphs), str(sectors), "--parts", str(PARTS))


def _build(events: Events, graphs: Path, raw: Path, testdata: Path) -> None:
    if events.particles:
        hits = raw / str(events.particles)
        numbers = ["--particles", str(events.particles), "--events", str(events.copies)]
        _quietly("bigtrk", "simulate", str(hits), *numbers)
        _quietly("bigtrk", "build", str(hits), str(graphs))
        return
    hits = testdata / "data" / "trackml_event1000"
    if not hits.is_dir():
        raise InputError(f"{hits}: no such folder; set BIGTRK_TESTDATA to the one that holds data")
    built = raw / graphs.name
    _quietly("bigtrk", "build", str(hits), str(built), *events.build)
    _copy(GraphFolder(built), graphs, events.copies)


def _copy(folder: GraphFolder, graphs: Path, copies: int) -> None:
    """Writes the first graph of `folder` under several names."""
    first = folder.events[0]
    graph, record = folder.read(first), folder.record(first)
    graphs.mkdir(parents=True, exist_ok=True)
    names = [f"{first}{i:02}" for i in range(copies)]
    for name in names:
        write_graph(graphs, replace(graph, name=name), {"purity": record.get("purity")})
    write_manifest(graphs, "graphs", {}, names)


def _quietly(*arguments: str) -> None:
    command = [sys.executable, "-m", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=CHECKOUT)
