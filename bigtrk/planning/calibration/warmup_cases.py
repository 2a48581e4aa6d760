"""The cases that a calibration measures.

They are a model of each kind, at widths from narrow to wide, in every way of recomputing and both
precisions, on graphs with ten edges per node and with one, as simulated events have; some graphs
that are smaller or larger than the others'; the least passes; and passes that take seconds.
"""

from dataclasses import dataclass, replace
from typing import Literal

from bigtrk.training.settings import Configuration


@dataclass(frozen=True)
class Case:
    """A model and a graph to train it on, for `steps` steps after a warm-up step in each round;
    engine: "ddp", "fsdp2", or the name of a DeepSpeed file. graphs: `events` of each rank, which it
    trains in turn, that of the first, for which the others wait, or one in `parts` sectors that all
    ranks share.
    """

    nodes: int
    edges: int
    hidden: int
    name: str = "interaction"
    layers: int = 3
    recompute: str = "chunk"
    precision: str = "fp32"
    steps: int = 4
    engine: str = "ddp"
    graphs: Literal["each", "first", "shared"] = "each"
    parts: int = 1
    events: int = 1

    def configuration(self, ranks: int = 1) -> Configuration:
        """Returns the configuration of a run with such graphs in a step."""
        names = ("name", "hidden", "recompute", "precision")
        depth = "mlp_layers" if self.name == "mlp" else "layers"
        model = {**{name: getattr(self, name) for name in names}, depth: self.layers}
        own = {"name": "deepspeed", "ds_config": self.engine}
        engine = own if self.engine.startswith("zero") else {"name": self.engine}
        training = {"events_per_step": self.events * ranks if self.graphs == "each" else 1}
        return Configuration.model_validate(
            {"model": model, "engine": engine, "training": training}
        )


_WAYS = {
    "interaction": ("chunk", "none", "layer"),
    "attention": ("none", "layer"),
    "mlp": ("chunk", "none", "layer"),
}
# Edges at each width, so that a step takes some tenths of a second on a core, and as many times
# more for the models that compute less of an edge.
_EDGES = {
    16: 60_000,
    24: 52_000,
    32: 45_000,
    48: 37_000,
    64: 30_000,
    96: 20_000,
    128: 14_000,
    256: 6_000,
    512: 3_000,
}
_MORE = {"interaction": 1, "attention": 2, "mlp": 3}
_PRECISIONS = ("fp32", "bf16")


def _case(name: str, hidden: int, recompute: str, precision: str) -> Case:
    edges = _MORE[name] * _EDGES[hidden]
    return Case(max(300, edges // 10), edges, hidden, name, 3, recompute, precision)


def _sparse(case: Case) -> Case:
    """Returns the case with as many nodes as edges: a third, since nodes are computed, too. Its
    steps are shorter, and vary more.
    """
    return replace(case, nodes=case.edges // 3, edges=case.edges // 3, steps=6)


GRID = tuple(
    _case(name, hidden, recompute, precision)
    for hidden in (64, 16, 256)
    for name, ways in _WAYS.items()
    for recompute in ways
    for precision in _PRECISIONS
)
# Other widths, and above all those between powers of two, which fill no whole tiles of products:
# steps took 1.3 times as long as the widths beside them told. Smoothing tells other ways by these.
WIDTHS = tuple(
    _case(name, hidden, ways[0], precision)
    for hidden in (24, 48, 96, 128)
    for name, ways in _WAYS.items()
    for precision in _PRECISIONS
)
# The default model has more of them.
OF_DEFAULT = tuple(
    _case("interaction", hidden, "chunk", precision)
    for hidden in (32, 512)
    for precision in _PRECISIONS
)
DENSE = (*GRID, *WIDTHS, *OF_DEFAULT)
SPARSE = tuple(map(_sparse, DENSE))
SIZES = (
    Case(500, 1_500, 32, layers=8, steps=10),
    Case(600, 5_000, 64),
    Case(600, 5_000, 64, recompute="layer"),
    Case(2_000, 5_000, 64, name="mlp"),
    Case(600, 5_000, 64, name="attention", recompute="layer"),
    Case(20_000, 30_000, 64),
    Case(9_000, 90_000, 64),
    Case(9_000, 90_000, 64, recompute="layer"),
    Case(9_000, 90_000, 64, recompute="none"),
    Case(12_000, 180_000, 64, name="attention", recompute="layer"),
    Case(20_000, 30_000, 64, name="attention", recompute="none"),
    Case(20_000, 30_000, 64, name="attention", recompute="layer", precision="bf16"),
    Case(30_000, 300_000, 64, name="mlp"),
)
# The least passes, in every way of recomputing: operations start at their own pace in each, and all
# rows stay in caches.
LEAST = tuple(replace(case, nodes=300, edges=1_000, steps=30) for case in GRID if case.hidden == 64)
CASES = (*DENSE, *SPARSE, *SIZES, *LEAST)
# Passes that take seconds, in every way of recomputing, on graphs ten times as large. On a virtual
# machine that hands freed memory back to its host every two seconds, they wait for pages that most
# shorter ones find again.
LONG = tuple(
    replace(case, nodes=10 * case.nodes, edges=10 * case.edges, steps=2)
    for case in GRID
    if case.hidden == 64
)
# Small graphs, in which the time of an engine shows: beside DDP's, by tensors, by bytes of weights
# and for a pass. They have widths that larger graphs have, too: where they alone had one, they told
# that an attention network of that width takes 0.4 to 0.9 of the seconds counted on any graph.
# Engines follow each other on the same case. Layers are gathered in each of several passes.
ENGINES = tuple(
    Case(300, 1_000, hidden, name, layers, _WAYS[name][0], steps=steps, engine=own, events=events)
    for hidden, name, layers, events, steps in (
        (32, "interaction", 2, 1, 40),
        (32, "interaction", 8, 1, 20),
        (256, "interaction", 4, 1, 10),
        (64, "attention", 4, 1, 40),
        (64, "attention", 4, 4, 10),
        (64, "mlp", 2, 1, 60),
        (64, "mlp", 2, 4, 20),
    )
    for own in ("ddp", "fsdp2", "zero1", "zero3")
)
# Measured with as many ranks as cores (at most 4), and with twice as many where these are more than
# the cores.
CROWD = tuple(
    _case(name, 64, recompute, precision)
    for name, recompute in (("interaction", "chunk"), ("attention", "layer"), ("mlp", "none"))
    for precision in _PRECISIONS
)
# One rank for which the others wait.
WAITED_FOR = tuple(replace(case, graphs="first") for case in CROWD)
# One graph that all ranks share. Twice as many train it in as many sectors, two or one on each.
SHARED = tuple(
    replace(case, nodes=4 * case.nodes, edges=4 * case.edges, graphs="shared")
    for case in CROWD
    if case.name != "mlp"
)
# What a process takes is measured in one of its own: 239, 260 and 251 MiB beyond what is counted of
# these, and in half of 29 runs 232 to 254 MiB.
SMALLEST = Case(500, 1_500, 32, layers=4)
MEMORY = (
    SMALLEST,
    Case(10_000, 100_000, 64, recompute="none"),
    Case(20_000, 30_000, 64, name="mlp"),
)
# On an accelerator a case is enlarged so many times, to outweigh the start of operations; its steps
# vary less, so that fewer tell as much.
_ON_ACCELERATOR = 20


def _enlarged(case: Case) -> Case:
    more = _ON_ACCELERATOR
    return replace(case, nodes=case.nodes * more, edges=case.edges * more, steps=3)


# Where the start of operations and what they compute take about as long, and beyond.
_GROWING = tuple(
    Case(edges // 20, edges, 64, layers=8, precision=precision)
    for edges in (100_000, 300_000, 1_000_000, 3_000_000)
    for precision in _PRECISIONS
)
# Its edges travel between the accelerator and its host.
OFFLOADED = Case(100_000, 2_000_000, 64, layers=8, recompute="offload", precision="bf16")
ON_ACCELERATOR = (
    *map(_enlarged, DENSE),
    *(_enlarged(_sparse(case)) for case in GRID if case.hidden == 64),
    *(replace(case, steps=8) for case in LEAST),
    *_GROWING,
    OFFLOADED,
)
ENGINES_ON_ACCELERATOR = tuple(replace(case, steps=8) for case in ENGINES)
# Some of them once more, which tells how far apart two measurements are.
AGAIN = tuple(one for one in ON_ACCELERATOR if (one.hidden, one.layers) == (128, 3))
