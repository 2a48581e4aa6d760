"""Compares the gradients of mini-batches with the exact gradient of whole events.

    python -m scripts.studies.gradient_audit RUN SECTORS [--way WAY]... [--draws N] [--events N]
        [--seed N] [--output FILE] [--publish]

RUN is a finished run, SECTORS the sectors of its events (`python -m partition`). At the weights
that the run ended with, the script draws mini-batches as the training makes them (ShaDow, sectors
with and without halo, wedges) and prints for each way the bias, the noise, the cosine with the
exact gradient, the noise scale (the batch size beyond which more draws stop paying) and the
progress of a step along one draw. The last line is one JSON object.

Estimates follow from inner products. Where a product of two draws stands for a product of their
expectations, the two are independent, so neither the bias nor the norm of the mean counts its own
noise. Noise scale: McCandlish et al. 2018 (arXiv:1812.06162), appendix A.1; progress: equation 2.6.

Shapes: n draws, P parameter values.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigtrk.config import apply_overrides
from bigtrk.console import exit_on_bad_input, follow, say
from bigtrk.errors import InputError
from bigtrk.parallel.engines.engine import Engine, Piece, Shard
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import configure_process, discover
from bigtrk.parallel.routing import Assignment
from bigtrk.parallel.world import World, make_world
from bigtrk.records.run import MeasuredScales
from bigtrk.training.data.batch import BatchMaker, Loader, Share
from bigtrk.training.data.event_source import EventSource, open_events
from bigtrk.training.evaluation.evaluate import evaluated_configuration
from bigtrk.training.model_files import load_model
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import choose_steps
from bigtrk.training.trainer import StepRunner
from scripts.results import Results, add_options

Floats = NDArray[np.float64]
# One event, or one part of an event, per draw: larger steps follow from these.
ONE_AT_A_TIME = (
    "engine={}",
    "sampling.method=none",
    "sampling.bulk=1",
    "data.sectors=halo",
    "training.events_per_step=1",
    "training.batching=random",
    "training.auto=false",
    "training.spill=null",
    "training.spike_guard='off'",
)
WAYS = {
    "shadow": ("sampling.method=shadow",),
    "naive-sectors": ("sampling.method=sectors", "data.sectors=naive"),
    "halo-sectors": ("sampling.method=sectors", "data.sectors=halo"),
    "wedges": ("sampling.method=wedges",),
}
TINY = 1e-300


class Gradient(NamedTuple):
    """The gradient of a step: values [P], loss, number of edges in the loss, seconds."""

    values: Tensor
    loss: float
    edges: int
    seconds: float


class GradientEngine(Engine):
    """Computes gradients and leaves the weights as they are."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._losses: list[Tensor] = []
        self.taken = torch.empty(0)

    def micro_step(self, last: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        self._losses.append(loss)

    def step(self, lr: float) -> None:  # noqa: ARG002
        """Takes the gradient of all losses since the last step."""
        weights = list(self.model.parameters())
        found = torch.autograd.grad(torch.stack(self._losses).sum(), weights)
        self.taken = torch.cat([part.flatten() for part in found]).cpu()
        self.discard()

    def discard(self) -> None:
        self._losses.clear()

    def shards(self) -> Iterator[Shard]:
        for name, weight in self.model.named_parameters():
            yield Shard(name, weight)

    def pieces(self) -> Iterator[Piece]:
        return iter(())

    def weights(self) -> dict[str, Tensor]:
        return {name: value.cpu() for name, value in self.model.state_dict().items()}


@dataclass(frozen=True)
class Audit:
    """A model, its configuration with steps of one event each, and the events."""

    model: nn.Module
    configuration: Configuration
    measured: MeasuredScales
    world: World
    sources: list[EventSource]

    def gradient(self, event: int, shares: Sequence[Share]) -> Gradient:
        """Returns the gradient of a step of `shares` of one event; raises InputError if the loss is
        not finite.
        """
        engine = GradientEngine(self.model)
        runner = StepRunner(engine, self.configuration.training, self.world)
        begin = time.perf_counter()
        result = runner.run([event], shares, lr=0.0)
        return Gradient(engine.taken, result.loss, result.edges, time.perf_counter() - begin)

    def exact(self) -> list[Gradient]:
        """Returns the exact gradient of every event."""
        maker = BatchMaker(self.configuration, self.world, self.measured)
        events = follow(range(len(self.sources)), len(self.sources), "exact", lines=1)
        wholes = (Assignment(event, (0,), 1, first_rank=0) for event in events)
        return [self.gradient(one.event, [maker.make(one, self.sources)]) for one in wholes]

    def draws(self, way: str, number: int) -> tuple[NDArray[np.int64], list[Gradient]]:
        """Draws mini-batches: the event of each [n], and the gradients."""
        content = self.configuration.model_dump(mode="json")
        configured = apply_overrides(Configuration, content, WAYS[way], way)
        steps = choose_steps(configured, self.world.ranks, self.sources)
        maker = BatchMaker(configured, self.world, self.measured)
        events: list[int] = []
        gradients: list[Gradient] = []
        # One step of each epoch: two steps of one epoch are not independent.
        for epoch in follow(range(number), number, way, lines=1):
            routes = steps.of(epoch)
            seed = (configured.training.seed, epoch)
            step = routes[np.random.default_rng(seed).integers(len(routes))]
            shares = Loader(steps.reader(epoch, maker), self.world).load(step.micro_steps)
            events += step.events
            gradients.append(self.gradient(step.events[0], shares))
        return np.array(events), gradients


@dataclass(frozen=True)
class Products:
    """Inner products of n draws g, the exact gradients r of their events, and that of all events G.

    drawn [n, n]: g g'. apart [n, n]: (g - r)(g' - r'). crossed [n]: g r. exact [n]: r r.
    along [n]: g G. target: G G. blocks [n]: draws of different blocks are independent.
    """

    drawn: Floats
    apart: Floats
    crossed: Floats
    exact: Floats
    along: Floats
    target: float
    blocks: NDArray[np.int64]

    def without(self, block: int) -> "Products":
        """Leaves the draws of a block out."""
        kept = np.flatnonzero(self.blocks != block)
        square = np.ix_(kept, kept)
        return Products(
            self.drawn[square],
            self.apart[square],
            self.crossed[kept],
            self.exact[kept],
            self.along[kept],
            self.target,
            self.blocks[kept],
        )


def products(draws: Floats, exact: Floats, target: Floats, events: NDArray[np.int64]) -> Products:
    """Multiplies draws [n, P], the exact gradients of their events [n, P] and that of all [P].

    Two draws of one event [n] are independent only where there is no other event.
    """
    apart = draws - exact
    one_event = len(np.unique(events)) < 2
    return Products(
        drawn=draws @ draws.T,
        apart=apart @ apart.T,
        crossed=(draws * exact).sum(1),
        exact=(exact * exact).sum(1),
        along=draws @ target,
        target=float(target @ target),
        blocks=np.arange(len(draws)) if one_event else events,
    )


def estimates(of: Products) -> dict[str, float]:
    """Estimates bias^2, noise, cosine, signal and progress, in units of |G|^2; NaN is unknown."""
    spread = float(of.drawn.diagonal().mean()) - _between(of.drawn, of.blocks)
    norms = np.sqrt(of.drawn.diagonal() * of.exact)
    along = max(0.0, float(of.along.mean()))
    square = float(of.drawn.diagonal().mean())
    return {
        "bias_squared": _between(of.apart, of.blocks) / of.target,
        "noise": spread / of.target,
        "cosine": float((of.crossed / np.maximum(norms, TINY)).mean()),
        # One over the noise scale.
        "signal": _between(of.drawn, of.blocks) / spread if spread > 0 else math.nan,
        "progress": along**2 / max(of.target * square, TINY),
    }


def with_errors(of: Products) -> dict[str, tuple[float, float]]:
    """Adds the standard error of the jackknife, which leaves one block out after the other."""
    blocks = np.unique(of.blocks).tolist()
    left = [estimates(of.without(block)) for block in blocks] if len(blocks) > 2 else []
    return {
        name: (value, math.sqrt((len(left) - 1) * float(np.var([one[name] for one in left]))))
        if left
        else (value, math.nan)
        for name, value in estimates(of).items()
    }


def _between(found: Floats, blocks: NDArray[np.int64]) -> float:
    """Averages over pairs of independent draws; NaN where there is none."""
    independent = blocks[:, None] != blocks
    return float(found[independent].mean()) if independent.any() else math.nan


@dataclass(frozen=True)
class Row:
    """The estimates of one way, as (value, standard error); edges and seconds of a draw."""

    way: str
    edges: float
    seconds: float
    estimates: dict[str, tuple[float, float]]

    @property
    def bias(self) -> float:
        return math.sqrt(max(self.estimates["bias_squared"][0], 0.0))

    def noise_scale(self, event_edges: float) -> float:
        """Returns the noise scale in events' worth of edges; infinite without a signal."""
        signal = self.estimates["signal"][0]
        return self.edges / event_edges / signal if signal > 0 else math.inf


def _matrix(gradients: Sequence[Gradient]) -> Floats:
    return torch.stack([one.values for one in gradients]).double().numpy()


def audit(run: Path, data: Path, ways: Sequence[str], arguments: argparse.Namespace) -> list[Row]:
    """Draws gradients in each way at a run's last weights, and estimates; raises InputError if the
    run embeds hits or draws its edges, or the data lack what a way needs.
    """
    configuration = evaluated_configuration(run)
    if configuration.model.kind == "hit" or configuration.negatives.are_chosen:
        raise InputError(
            f"{run}: an embedding, or a run that draws its edges, has no exact gradient"
        )
    seed = f"training.seed={arguments.seed}"
    content = configuration.model_dump(mode="json")
    single = apply_overrides(Configuration, content, [*ONE_AT_A_TIME, seed], str(run))
    stored = load_model(run)
    ranks = discover()
    configure_process(ranks)
    with process_group(ranks):
        world = make_world(ranks)
        sources = open_events([data])[: arguments.events]
        model = stored.model.to(world.device)
        subject = Audit(model, single, stored.measured, world, sources)
        exact = subject.exact()
        of_events = _matrix(exact)
        target = of_events.mean(0)
        if not target.any():
            raise InputError(f"{data}: the loss of its events has no gradient")
        events = np.arange(len(sources))
        drawn = {"events": (events, exact)} | {
            way: subject.draws(way, arguments.draws) for way in ways
        }
    return [
        Row(
            way,
            fmean(one.edges for one in gradients),
            median(one.seconds for one in gradients),
            with_errors(products(_matrix(gradients), of_events[of], target, of)),
        )
        for way, (of, gradients) in drawn.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("data", type=Path, help="folder of the sectors of its events")
    parser.add_argument("--way", choices=WAYS, action="append", help="all by default")
    parser.add_argument("--draws", type=int, default=32, help="mini-batches of each way")
    parser.add_argument("--events", type=int, default=16, help="the first of DATA")
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("gradient_audit", arguments)
    rows = audit(arguments.run, arguments.data, arguments.way or tuple(WAYS), arguments)
    whole = rows[0].edges
    for row in rows:
        found = row.estimates
        say(
            f"{row.way:14} bias {100 * row.bias:.3g} %, noise {found['noise'][0] ** 0.5:.3g}, "
            f"cosine {found['cosine'][0]:.3f}, noise scale {row.noise_scale(whole):.3g} events, "
            f"progress {100 * found['progress'][0]:.1f} %, {1000 * row.seconds:,.0f} ms"
        )
    summary = {
        row.way: {
            name: None if math.isnan(one) else one for name, (one, _) in row.estimates.items()
        }
        for row in rows
    }
    results.write(summary, ways=[asdict(row) for row in rows])


if __name__ == "__main__":
    exit_on_bad_input("gradient_audit.py", main)
