"""One optimizer step: its micro-steps, its global counts, its loss."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.parallel.collectives import all_max, all_sum
from bigtrk.parallel.engines.engine import Engine
from bigtrk.parallel.world import World
from bigtrk.records.metrics import StepRecord
from bigtrk.tracing import traced
from bigtrk.training.data.batch import Batch, EdgePrediction, Share, compute, run_model
from bigtrk.training.draws import Draw, choose_edges
from bigtrk.training.embedding import pair_loss
from bigtrk.training.guards import StopRequest
from bigtrk.training.loss import EdgeLoss, edge_scale, make_loss, pt_loss
from bigtrk.training.monitoring.meter import Norms, local_squares, norms_of
from bigtrk.training.settings import NegativeSettings, PairSettings, TrainingSettings
from bigtrk.training.steps.epoch_steps import RoutedStep


@dataclass(frozen=True)
class StepResult:
    """A step's loss of edges and of pT (None without one), its number of edges, norms (if asked
    for, and for a spike), whether it was dropped as a spike, and whether any rank was asked to
    stop; all the same on all ranks.
    """

    loss: float
    pt_loss: float | None
    edges: int
    norms: Norms | None
    spike: bool
    stop: bool

    def record(
        self,
        epoch: int,
        step: int,
        route: RoutedStep,
        names: Sequence[str],
        lr: float,
        seconds: float,
    ) -> StepRecord:
        """Makes the step's record. names: of all events. seconds: its time."""
        cuts = {names[i]: cut for i, cut in route.cuts.items()}
        return StepRecord(
            epoch=epoch,
            step=step,
            loss=_finite(self.loss),
            pt_loss=_finite(self.pt_loss),
            spike=self.spike,
            lr=lr,
            events=len(route.events),
            edges=self.edges,
            micro_steps=len(route.micro_steps),
            imbalance=route.imbalance,
            routes={name: cut.parts for name, cut in cuts.items()},
            ranks={name: cut.ranks for name, cut in cuts.items() if cut.ranks != cut.parts},
            norms=self.norms.record() if self.norms else None,
            seconds=seconds,
        )


def _finite(loss: float | None) -> float | None:
    """Returns a loss as a record has it."""
    return loss if loss is not None and math.isfinite(loss) else None


@dataclass(frozen=True)
class StepRunner:
    """Computes steps with one engine.

    A step's loss is a sum over the edges its events own, each edge divided by global counts that
    are known before the first micro-step; so it does not depend on ranks, micro-steps or cuts. The
    training minimises the loss of edges + pt_weight x that of pT. The guard's limit is for the
    first, which is the aim of the run. With `pairs` the model embeds hits, and its loss is that of
    pairs instead of edges. With `negatives` only some false edges are trained.
    """

    engine: Engine
    settings: TrainingSettings
    world: World
    stop: StopRequest | None = None
    pairs: PairSettings | None = None
    negatives: NegativeSettings | None = None

    @cached_property
    def _edge_loss(self) -> EdgeLoss:
        return make_loss(self.settings)

    def run(
        self,
        events: Sequence[int],
        shares: Sequence[Share],
        lr: float,
        norms: bool = False,
        limit: float = math.inf,
        number: int = 0,
    ) -> StepResult:
        """Trains on `events`, of which `shares` are this rank's micro-steps. Collective.

        What is drawn, pairs of hits or false edges, depends on the step's `number`.

        With a spike guard, a step whose loss of edges exceeds `limit` does not update the weights,
        nor does one whose loss or gradients are not finite.

        Raises:
            InputError: the loss is not finite (on all ranks alike; the weights are not updated),
                and there is no spike guard.
        """
        batches = [batch for share in shares for batch in share.batches]
        denominators = self._denominators(events, batches)
        local = torch.zeros(2, dtype=torch.float64)
        for i, share in enumerate(shares):
            with self.engine.micro_step(last=i == len(shares) - 1):
                losses = self._losses(number, share, denominators, len(events))
                loss = losses[0] + self.settings.pt_weight * losses[1]
                self.world.memory.look()  # all that is kept for the backward pass is there
                with traced("backward"):
                    self.engine.backward(loss * self.world.ranks.world_size)
            local += torch.stack(losses).detach().cpu()
        owned = sum(int(batch.sector.owns_edge.sum()) for batch in batches)
        with self.world.stopwatch.time("reduce"):
            asked = self.stop is not None and self.stop.reason != ""
            sums = all_sum([*local.tolist(), owned, asked], self.world.ranks.device)
        total, of_pt, edges, stop = sums.tolist()
        guarded = self.settings.spike_guard != "off"
        trained = total + self.settings.pt_weight * of_pt
        if not guarded and not math.isfinite(trained):
            raise InputError(
                f"the loss became {trained}: lower optimizer.lr or set optimizer.gradient_clipping "
                f"and resume from the last checkpoint"
            )
        measured, spike = self._norms() if norms or guarded else None, False
        if measured is not None and guarded:
            fine = math.isfinite(trained) and total <= limit and measured.finite_gradient
            # Ranks agree on a spike: otherwise they would wait for each other.
            with self.world.stopwatch.time("reduce"):
                spike = bool(all_max([not fine], self.world.ranks.device).any())
        with traced("optimizer"):
            if spike:
                self.engine.discard()
            else:
                self.engine.step(lr)
        self.world.memory.look()  # the events are still mapped
        return StepResult(
            loss=total,
            pt_loss=of_pt if self.settings.pt_weight else None,
            edges=int(edges),
            norms=measured if norms or spike else None,
            spike=spike,
            stop=stop > 0,
        )

    def _norms(self) -> Norms:
        with traced("norms"):
            groups, squares = local_squares(self.engine, self.world.ranks.device)
        with self.world.stopwatch.time("reduce"):
            return norms_of(groups, all_sum(squares, self.world.ranks.device))

    def _losses(
        self, number: int, share: Share, denominators: dict[int, Tensor], n_events: int
    ) -> tuple[Tensor, Tensor]:
        """Returns this rank's part of the step's losses, of edges (or pairs) and of pT; for an
        empty sector zero, but with an autograd graph.
        """
        counts = torch.ones(3, dtype=torch.float64)
        if share.event is not None:
            counts = denominators[share.event]
        n_means = n_events if self.settings.step_loss == "per_event" else 1
        draw = Draw(self.settings.seed, number)
        if self.pairs is not None:
            embedded = zip(run_model(self.engine.model, share), share.batches, strict=True)
            with traced("loss"):
                counts = counts[:2] * n_means
                loss = _sum([pair_loss(*one, counts, self.pairs, draw) for one in embedded])
                return loss, torch.zeros_like(loss)
        if self.negatives is not None:
            with traced("choosing edges"):
                share = choose_edges(self.engine.model, share, self.negatives, draw)
        predicted = compute(self.engine.model, share)
        with traced("loss"):
            pairs = zip(share.batches, predicted, strict=True)
            losses = [self._edge_losses(*pair, counts, n_means) for pair in pairs]
            of_edges, of_pt = zip(*losses, strict=True)
            return _sum(of_edges), _sum(of_pt)

    def _edge_losses(
        self, batch: Batch, predicted: EdgePrediction, counts: Tensor, n_means: int
    ) -> tuple[Tensor, Tensor]:
        """Returns a sector's part of the losses of edges and of pT."""
        logits, log_pt = predicted
        counts = counts.to(logits.device)
        scale = edge_scale(batch.truth, counts[:2], self.settings.class_balance) / n_means
        of_edges = self._edge_loss(logits, batch.truth, counts[:2], scale)
        counts = counts * n_means
        if log_pt is None or batch.pt is None:
            return of_edges, torch.zeros_like(of_edges)
        return of_edges, pt_loss(log_pt, batch.pt, counts[2])

    def _denominators(self, events: Sequence[int], batches: Sequence[Batch]) -> dict[int, Tensor]:
        """Returns the denominators of the losses by event: the counts [3] of positives, negatives
        and edges of known pT. Collective.
        """
        counts = torch.zeros(len(events), 3, dtype=torch.float64)
        for batch in batches:
            if batch.event is not None:
                counts[events.index(batch.event), :2] += batch.truth.counts
                counts[events.index(batch.event), 2] += batch.pt.count if batch.pt else 0
        with self.world.stopwatch.time("reduce"):
            counts = all_sum(counts, self.world.ranks.device)
        if self.settings.step_loss == "per_edge":
            counts = counts.sum(dim=0).expand_as(counts)
        return dict(zip(events, counts, strict=True))


def _sum(parts: Sequence[Tensor]) -> Tensor:
    return sum(parts[1:], start=parts[0])
