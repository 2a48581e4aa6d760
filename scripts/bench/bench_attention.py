"""Time and memory of an attention network's training step, by how it says which nodes edges join.

    python scripts/bench/bench_attention.py HEPTRKX.npz [--output FILE] [--quick | --publish]

The sides are those of the slides of Farrell et al. (2019): dense matrices [nodes, edges]; gathering
and scattering rows, as PyTorch Geometric does; products of a sparse matrix [nodes, nodes]. The
three differ in nothing else. bigtrk's model runs next to them at its settings. Graphs: one of
HEPTrkX, and two simulated events, the larger of which is far too large for dense matrices.

Sides alternate, each in a process that has done nothing else but a warm-up. Memory is the peak
above what the process held before its first step; the error that of the logits against the dense
form in float64, relative to their spread, on the smallest graph. The last line is one JSON object:
time and memory of each form on HEPTrkX's graph, over those of bigtrk's default.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.console import exit_on_bad_input, follow, say
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.formats.heptrkx import read_heptrkx
from bigtrk.graphs.builders.builder import WindowBuilder, build_graph
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import SCALES, normalised
from bigtrk.models.attention_gnn import AttentionGNN, Neighbours, WeightedSums
from bigtrk.models.protocol import SectorInputs, no_exchange
from bigtrk.models.settings import AttentionGNNConfig
from bigtrk.parallel.ranks import configure_process, discover, memory_of_rank
from scripts.bench.bench_hot_path import peak
from scripts.results import Results, add_options
from tests.oracle.attention_gnn import (
    DenseIncidence,
    Incidence,
    ReferenceAttention,
    our_attention_name,
)

FEATURES = ("r", "phi", "z")  # what HEP.TrkX gave it
HEPTRKX = "HEPTrkX"
PARTICLES = {"simulated, small": 500, "simulated": 4000}
Inputs = tuple[Tensor, Tensor, Tensor]


class ScatterIncidence:
    """Rows gathered for edge_index [2, E] from nodes x [N, F], and added to the nodes'."""

    def __init__(self, edge_index: Tensor, x: Tensor) -> None:
        self._source, self._destination, self._n_nodes = *edge_index, len(x)

    def ends(self, state: Tensor) -> tuple[Tensor, Tensor]:
        return state[self._source], state[self._destination]

    def sums(self, weights: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        source, destination = self.ends(state)
        zeros = torch.zeros_like(state)
        incoming = zeros.index_add(0, self._destination, weights[:, None] * source)
        return incoming, zeros.index_add(0, self._source, weights[:, None] * destination)


class SparseIncidence(ScatterIncidence):
    """Sums as products with the matrix of the edges' weights."""

    def __init__(self, edge_index: Tensor, x: Tensor) -> None:
        super().__init__(edge_index, x)
        self._graph = Neighbours(SectorInputs(x, x[:0], edge_index, len(x)))

    def sums(self, weights: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        made: tuple[Tensor, Tensor] = WeightedSums.apply(self._graph, weights, state)
        return made


FORMS: dict[str, Callable[[Tensor, Tensor], Incidence]] = {
    "dense": DenseIncidence,
    "scatter": ScatterIncidence,
    "sparse product": SparseIncidence,
}
OWN = {
    "bigtrk none fp32": {"recompute": "none"},
    "bigtrk layer fp32": {"recompute": "layer"},
    "bigtrk layer bf16": {"recompute": "layer", "precision": "bf16"},
}
SIDES = (*FORMS, *OWN)
BASELINE = "bigtrk layer fp32"


@dataclass(frozen=True)
class Case:
    """A side on a graph; those of HEPTrkX come from `file`."""

    side: str
    graph: str
    file: str
    layers: int
    hidden: int = 64
    steps: int = 5


def read(case: Case) -> EventGraph:
    if case.graph == HEPTRKX:
        return read_heptrkx(Path(case.file))
    return build_graph(
        simulate_event(PARTICLES[case.graph], seed=0), WindowBuilder(builtin_windows())
    )


def inputs_of(graph: EventGraph) -> Inputs:
    x = normalised(graph.node_features, graph.node_feature_names, SCALES, FEATURES)
    return x, graph.edge_features, graph.edge_index


def models(case: Case) -> tuple[nn.Module, ReferenceAttention]:
    """Makes the side's model and the dense form, with the same weights."""
    torch.manual_seed(0)
    sizes = {"hidden": case.hidden, "layers": case.layers, "edge_features": False}
    config = AttentionGNNConfig.model_validate({**sizes, **OWN.get(case.side, {})})
    dense = ReferenceAttention(config, len(FEATURES), 0)
    weights = dense.state_dict()
    if form := FORMS.get(case.side):
        reference = ReferenceAttention(config, len(FEATURES), 0, form)
        reference.load_state_dict(weights)
        return reference, dense
    own = AttentionGNN(config, len(FEATURES), 0)
    own.load_state_dict({our_attention_name(name): value for name, value in weights.items()})
    return own, dense


def logits_of(model: nn.Module, inputs: Inputs) -> Tensor:
    if isinstance(model, ReferenceAttention):
        return model(*inputs)  # type: ignore[no-any-return]
    return model(*inputs, len(inputs[0]), no_exchange)  # type: ignore[no-any-return]


def measure(case: Case) -> dict[str, Any]:
    """Measures seconds of the median step, and bytes above what was held before the first."""
    model, graph = models(case)[0], read(case)
    inputs, labels = inputs_of(graph), torch.zeros(graph.n_edges)
    x, edge_features, edge_index = inputs
    few = (edge_index < 100).all(dim=0)
    logits_of(model, (x[:100], edge_features[few], edge_index[:, few])).sum().backward()
    base, seconds = peak(), []
    for _ in range(case.steps + 1):
        start = time.perf_counter()
        binary_cross_entropy_with_logits(logits_of(model, inputs), labels).backward()
        model.zero_grad()
        seconds.append(time.perf_counter() - start)
    return {"seconds": median(seconds[1:]), "bytes": peak() - base}


def error(case: Case) -> float:
    """Returns the logits' largest error against the dense form in float64, over their spread."""
    model, dense = models(case)
    inputs = inputs_of(read(case))
    x, edge_features, edge_index = inputs
    with torch.no_grad():
        exact = dense.double()(x.double(), edge_features, edge_index)
        return float((logits_of(model, inputs).double() - exact).abs().max() / exact.std())


def apart(case: Case, what: str = "measure") -> Any:
    """Returns `what` of a case in a process of its own; None where memory ran out."""
    command = [sys.executable, __file__, case.file, "--case", json.dumps(asdict(case))]
    done = subprocess.run([*command, "--what", what], capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"{case}: {(done.stderr.strip().splitlines() or ['killed'])[-1]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def fits(case: Case, graph: EventGraph) -> bool:
    """Whether a dense form's matrices fit this host: two, and two more with weights per layer
    for the backward pass, which makes some four at once.
    """
    matrices = 2 + 2 * case.layers + 4
    needed = 4 * matrices * graph.n_nodes * graph.n_edges
    return case.side != "dense" or needed < memory_of_rank(discover({}))


def rows_of(cases: list[Case], graphs: dict[str, EventGraph], rounds: int) -> list[dict[str, Any]]:
    """Returns medians over rounds, in each of which all cases take their turn."""
    found: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}
    turns = cases * rounds
    for case in follow(turns, len(turns), "cases"):
        found[case] += [result] if (result := apart(case)) else []
    return [
        {
            "graph": case.graph,
            "nodes": graphs[case.graph].n_nodes,
            "edges": graphs[case.graph].n_edges,
            "side": case.side,
            "rounds": len(results),
            **{k: median(result[k] for result in results) for k in ("seconds", "bytes")},
        }
        for case, results in found.items()
        if results
    ]


def summary(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Makes the last line: seconds and bytes over those of bigtrk's default, on HEPTrkX's graph."""
    at = {row["side"]: row for row in rows if row["graph"] == HEPTRKX}
    return {
        f"{form.replace(' ', '_')}_{kind}_ratio": at[form][of] / at[BASELINE][of]
        if form in at and BASELINE in at
        else None
        for form in FORMS
        for kind, of in (("time", "seconds"), ("memory", "bytes"))
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, help="a HEPTrkX npz graph")
    add_options(parser, quick="one round, two layers, without the larger event")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--what", default="measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if given.case:
        configure_process(discover({}))
        call = {"measure": measure, "error": error}[given.what]
        print(json.dumps(call(Case(**json.loads(given.case)))))
        return
    results = Results("attention", given)
    small, large = PARTICLES
    names = [HEPTRKX, small] if given.quick else [HEPTRKX, small, large]
    layers = 2 if given.quick else 8
    cases = [Case(side, name, str(given.file), layers) for name in names for side in SIDES]
    graphs = {name: read(Case("dense", name, str(given.file), layers)) for name in names}
    fitting = [case for case in cases if fits(case, graphs[case.graph])]
    rows = rows_of(fitting, graphs, rounds=1 if given.quick else 3)
    errors = {side: apart(Case(side, small, str(given.file), layers), "error") for side in SIDES}
    left_out = [{"graph": case.graph, "side": case.side} for case in cases if case not in fitting]
    for side, value in errors.items():
        say(f"error of the logits, {side}: {value:.1e}")
    facts = {"does_not_fit": left_out, "layers": layers, "hidden": 64}
    results.write(summary(rows), rows=rows, errors=errors, **facts)


if __name__ == "__main__":
    exit_on_bad_input("bench_attention.py", main)
