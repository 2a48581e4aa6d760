"""Finds out whether the fast path trains as the plain model does: loss curves, and AUC in bfloat16.

    python scripts/parity/unchanged_training.py [--output FILE] [--quick | --publish]

It trains on simulated events, from the same weights; all sides take turns on each step. Plain is
tests/oracle/interaction_gnn.py, as acorn and PyTorch Geometric write it.

Curves: relative difference of the step losses over one epoch. Rounding grows while AdamW trains, so
two more pairs tell it from a fault: the plain model against itself with its edges in another order,
and both models in float64.

AUC on validation events, of bfloat16 against float32 in chunks, after a training that ends at a
learning rate of zero, so that it does not hang on the last step. Rounding matters here too: without
recomputation float32 differs as well.

The last line is one JSON object; exit status 1 where a limit is exceeded.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from bigtrk.console import console, exit_on_bad_input, follow
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.formats.acorn.model_files import load_acorn_weights
from bigtrk.graphs.builders.build_folder import build_folder
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.parallel.engines.build import make_engine
from bigtrk.parallel.engines.engine import Engine
from bigtrk.parallel.host import configure_process
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks, discover
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.parallel.world import make_world
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import EventSource, split_validation
from bigtrk.training.data.share import Share
from bigtrk.training.evaluation.validation import validate
from bigtrk.training.settings import Configuration
from bigtrk.training.step import StepRunner
from bigtrk.training.steps.batching import step_items
from bigtrk.training.steps.routers import scoring_router
from scripts.results import Results, add_options
from tests.oracle.interaction_gnn import ReferenceGNN

CURVES = ("plain fp32", "reordered fp32", "chunk fp32", "plain fp64", "chunk fp64")
# Pairs of sides that are compared.
PAIRS = (
    ("chunk fp32", "plain fp32"),
    ("reordered fp32", "plain fp32"),
    ("chunk fp64", "plain fp64"),
)
PRECISIONS = ("chunk fp32", "none fp32", "chunk bf16", "none bf16")
LIMITS = {"loss chunk fp32": 1e-4, "auc chunk bf16": 0.002, "auc none bf16": 0.002}


@dataclass(frozen=True)
class Study:
    """The size of the trainings. particles: in each event; 2400 make 26,000 edges. lr, peak_lr: of
    the curves, and at the start of the training whose AUC is taken.
    """

    seeds: int = 3
    train: int = 8
    validation: int = 4
    epochs: int = 16
    particles: int = 2400
    hidden: int = 32
    layers: int = 4
    lr: float = 1e-3
    peak_lr: float = 3e-3

    def configuration(self, graphs: Path, seed: int, side: str) -> Configuration:
        """Makes the configuration of a side named by its recomputation and precision."""
        recompute, precision = side.split()
        options = {
            "hidden": self.hidden,
            "layers": self.layers,
            "recompute": recompute if recompute in ("none", "chunk") else "none",
            "precision": "bf16" if precision == "bf16" else "fp32",
        }
        return Configuration.model_validate(
            {
                "data": {"train": [graphs], "validation": self.validation},
                "model": options,
                "target": {"pt_min": 1.0, "hits_min": 3},
                "training": {"class_balance": "equal", "seed": seed},
            }
        )


QUICK = Study(seeds=1, train=2, validation=1, epochs=2, particles=500)


class Plain(nn.Module):
    """The reference, called as bigtrk's model is; reordered, it reads the last edge first."""

    def __init__(self, reference: ReferenceGNN, reordered: bool) -> None:
        super().__init__()
        self._reference, self._reordered = reference, reordered

    def forward(self, x: Tensor, edge_features: Tensor, edge_index: Tensor, *_: Any) -> Tensor:
        order = torch.arange(edge_index.shape[1], device=x.device)
        if self._reordered:
            order = order.flip(0)
        logits: Tensor = self._reference(x, edge_features[order], edge_index[:, order])
        return logits[order]


@dataclass(frozen=True)
class Trial:
    """Sides that start from the weights of one seed and train on the same events."""

    study: Study
    graphs: Path
    seed: int
    ranks: Ranks

    @property
    def common(self) -> Configuration:
        """Returns what all sides share."""
        return self.study.configuration(self.graphs, self.seed, "none fp32")

    @property
    def events(self) -> tuple[list[EventSource], list[EventSource]]:
        """Returns the events of training and of validation."""
        return split_validation([self.graphs], self.study.validation)

    def engine(self, side: str) -> Engine:
        configuration, data = (
            self.study.configuration(self.graphs, self.seed, side),
            self.common.data,
        )
        torch.manual_seed(self.seed)
        sizes = len(data.node_features), len(data.edge_features)
        assert isinstance(configuration.model, InteractionGNNConfig)
        reference = ReferenceGNN(configuration.model, *sizes)
        model: nn.Module = Plain(reference, reordered=side.startswith("reordered"))
        if side.startswith(("none", "chunk")):
            own = InteractionGNN(configuration.model, *sizes)
            load_acorn_weights(own, reference.state_dict())
            model = own
        if side.endswith("fp64"):
            model = model.double()
        stopwatch = Stopwatch(self.ranks.device)
        model = model.to(self.ranks.device)
        return make_engine(self.common.engine, model, self.common.optimizer, stopwatch)[0]

    def train(self, engines: dict[str, Engine], rates: Sequence[float]) -> dict[str, list[float]]:
        """Trains a step per learning rate, all sides taking their turn; returns their losses."""
        sources, _ = self.events
        world = make_world(self.ranks)
        maker = BatchMaker(self.common, world)
        losses: dict[str, list[float]] = {side: [] for side in engines}
        for i, lr in enumerate(follow(rates, len(rates), f"seed {self.seed}")):
            epoch, number = divmod(i, len(sources))
            step = step_items([0.0] * len(sources), 1, self.seed, epoch)[number]
            shares = [maker.whole(event, sources) for event in step]
            for side, engine in engines.items():
                runner = StepRunner(engine, self.common.training, world)
                mine = list(map(doubled, shares)) if side.endswith("fp64") else shares
                losses[side].append(runner.run(step, mine, lr).loss)
        return losses

    def curves(self) -> dict[str, list[float]]:
        """Returns the loss by step of each side, over one epoch."""
        engines = {side: self.engine(side) for side in CURVES}
        return self.train(engines, [self.study.lr] * self.study.train)

    def auc(self) -> dict[str, float]:
        """Returns the AUC of each precision on the validation events, after all epochs."""
        engines = {side: self.engine(side) for side in PRECISIONS}
        n_steps = self.study.train * self.study.epochs
        self.train(engines, [self.study.peak_lr * (1 - i / n_steps) for i in range(n_steps)])
        _, held = self.events
        router = scoring_router(held, self.ranks.world_size)
        maker = BatchMaker(self.common, make_world(self.ranks, router.num_ranks))
        found = {}
        for side, engine in engines.items():
            auc = validate(engine.model, maker, held, router, self.common.training).auc
            assert auc is not None, "validation events have target edges and others"
            found[side] = auc
        return found


def doubled(share: Share) -> Share:
    [batch] = share.batches
    truth = replace(batch.truth, weight=batch.truth.weight.double())
    x, edge_features = batch.x.double(), batch.edge_features.double()
    return replace(share, batches=[replace(batch, x=x, edge_features=edge_features, truth=truth)])


def make_graphs(study: Study, folder: Path) -> Path:
    """Makes graphs of simulated events."""
    events = range(study.train + study.validation)
    simulate_folder(folder / "events", events, study.particles, seed=0, detectors=None)
    build_folder(folder / "events", folder / "graphs")
    return folder / "graphs"


def summary(curves: list[dict[str, list[float]]], auc: list[dict[str, float]]) -> dict[str, float]:
    """Returns the largest differences over seeds: relative ones of losses, and those of the AUC."""
    found = {}
    for side, other in PAIRS:
        steps = [pair for row in curves for pair in zip(row[side], row[other], strict=True)]
        found[f"loss {side}"] = max(abs(a - b) / abs(b) for a, b in steps)
    first, *others = PRECISIONS
    for side in others:
        found[f"auc {side}"] = max(abs(row[side] - row[first]) for row in auc)
    return found


def table(found: dict[str, float], auc: list[dict[str, float]]) -> Table:
    shown = Table("", "largest difference", "limit", *(f"AUC, seed {i}" for i in range(len(auc))))
    shown.add_row(f"auc {PRECISIONS[0]}", "", "", *(f"{row[PRECISIONS[0]]:.5f}" for row in auc))
    for name, value in found.items():
        side = name.removeprefix("auc ")
        values = [f"{row[side]:.5f}" for row in auc] if side in PRECISIONS else []
        shown.add_row(name, f"{value:.1e}", str(LIMITS.get(name, "")), *values)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser, quick="one seed, few and small events")
    arguments = parser.parse_args()
    results = Results("unchanged_training", arguments)
    study, ranks = QUICK if arguments.quick else Study(), discover({})
    configure_process(ranks)
    with tempfile.TemporaryDirectory() as folder, process_group(ranks):
        graphs = make_graphs(study, Path(folder))
        trials = [Trial(study, graphs, seed, ranks) for seed in range(study.seeds)]
        curves = [trial.curves() for trial in trials]
        auc = [trial.auc() for trial in trials]
        edges = [source.record["edges"] for source in trials[0].events[0]]
    found = summary(curves, auc)
    console.print(table(found, auc))
    facts = {"limits": LIMITS, "study": {**asdict(study), "edges": edges}}
    results.write(found, loss_by_seed=curves, auc_by_seed=auc, **facts)
    raise SystemExit(any(found[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    exit_on_bad_input("unchanged_training.py", main)
