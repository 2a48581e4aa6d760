"""Trains an open run: the loops over epochs and steps, and one optimizer step."""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bigtrk.console import MOST_LINES, follow
from bigtrk.errors import AGAINST_DIVERGENCE, InputError, StoppedError, shell_word
from bigtrk.parallel.collectives import all_max, all_sum, sum_on
from bigtrk.parallel.engines.engine import Engine
from bigtrk.parallel.world import World
from bigtrk.process import Prefetcher, uploaded
from bigtrk.records.metrics import (
    AverageRecord,
    EpochRecord,
    NormsRecord,
    StepRecord,
    ValidationRecord,
)
from bigtrk.records.run import End
from bigtrk.tracing import traced
from bigtrk.training.checkpoint.folder import Found
from bigtrk.training.checkpoint.manifest import EpochTotals, Progress
from bigtrk.training.data.batch import Batch, EdgePrediction, Loader, Share, compute, run_model
from bigtrk.training.embedding import pair_loss, validate_embedding
from bigtrk.training.evaluation.scoring import validate
from bigtrk.training.guards import LossHistory, StopRequest, check_spikes, report_out_of_memory
from bigtrk.training.loss import Draw, EdgeLoss, choose_edges, edge_scale, make_loss, pt_loss
from bigtrk.training.monitoring.announce import EpochLines, announce, announce_best
from bigtrk.training.monitoring.meter import (
    local_squares,
    norms_of,
    open_meter,
    profiled,
    usage,
)
from bigtrk.training.run import Run
from bigtrk.training.schedule import Best, Clock, Plateau
from bigtrk.training.settings import NegativeSettings, PairSettings, TrainingSettings
from bigtrk.training.steps import RoutedStep, check_routes


@dataclass(frozen=True)
class StepResult:
    """A step's losses, number of edges, and norms (if asked for, or after a spike). spike: the step
    was left out. stop: any rank was asked to stop. The same on all ranks.
    """

    loss: float
    pt_loss: float | None
    edges: int
    norms: NormsRecord | None
    spike: bool
    stop: bool


def _finite(loss: float | None) -> float | None:
    """Returns the loss for a record: None if it is not finite."""
    return loss if loss is not None and math.isfinite(loss) else None


@dataclass(frozen=True)
class StepRunner:
    """Computes steps with one engine.

    A step's loss is a sum over its events' edges, each divided by global counts that are known
    before the first micro-step. So it does not depend on ranks, micro-steps or cuts. It is the loss
    of edges (pairs of hits with `pairs`; some edges with `negatives`) + pt_weight x loss of pT.
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
        """Trains on `events`, with this rank's `shares`, one per micro-step; random draws depend on
        the step's `number`. Collective. With a spike guard, a step whose loss of edges exceeds
        `limit`, or whose loss or gradients are not finite, does not update the weights. Without
        one, InputError is raised on all ranks for a loss that is not finite.
        """
        batches = [batch for share in shares for batch in share.batches]
        denominators = self._denominators(events, batches)
        local: list[Tensor] = []
        for i, share in enumerate(shares):
            with self.engine.micro_step(last=i == len(shares) - 1):
                losses = self._losses(number, share, denominators, len(events))
                weight, ranks = self.settings.pt_weight, self.world.ranks.world_size
                loss = losses[0] + weight * losses[1] if weight else losses[0]
                self.world.memory.look()  # at the peak: all tensors for the backward pass exist
                with traced("backward"):
                    self.engine.backward(loss * ranks if ranks > 1 else loss)
            local.append(torch.stack(losses).detach().double())
        asked = self.stop is not None and self.stop.reason != ""
        owned = sum(batch.owned_edges for batch in batches)
        known = torch.tensor([owned, asked], dtype=torch.float64)
        with self.world.stopwatch.time("reduce"):
            here = _sum(local)
            sums = all_sum(torch.cat([here, uploaded(known, here.device)]), self.world.ranks.device)
        total, of_pt, edges, stop = sums.tolist()
        guarded = self.settings.spike_guard != "off"
        trained = total + self.settings.pt_weight * of_pt
        if not guarded and not math.isfinite(trained):
            raise InputError(f"the loss became {trained}; {AGAINST_DIVERGENCE}")
        measured, spike = self._norms() if norms or guarded else None, False
        if measured is not None and guarded:
            is_finite = math.isfinite(trained) and None not in measured.gradient.values()
            fine = is_finite and total <= limit
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

    def _norms(self) -> NormsRecord:
        with traced("norms"):
            groups, squares = local_squares(self.engine, self.world.ranks.device)
        with self.world.stopwatch.time("reduce"):
            return norms_of(groups, all_sum(squares, self.world.ranks.device))

    def _losses(
        self, number: int, share: Share, denominators: dict[int, Tensor], n_events: int
    ) -> tuple[Tensor, Tensor]:
        """Returns a share's part of the step's losses: of edges (or pairs), and of pT."""
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
        """Returns a sector's part of the step's losses: of edges, and of pT."""
        logits, log_pt = predicted
        counts = uploaded(counts, logits.device)
        scale = edge_scale(batch.truth, counts[:2], self.settings.class_balance)
        scale = scale / n_means if n_means > 1 else scale
        of_edges = self._edge_loss(logits, batch.truth, counts[:2], scale)
        if log_pt is None or batch.pt is None:
            return of_edges, torch.zeros_like(of_edges)
        return of_edges, pt_loss(log_pt, batch.pt, counts[2] * n_means)

    def _denominators(self, events: Sequence[int], batches: Sequence[Batch]) -> dict[int, Tensor]:
        """Returns, by event, the counts [3] of positives, negatives, known pT. Collective."""
        counts = torch.zeros(len(events), 3, dtype=torch.float64)
        for batch in batches:
            if batch.event is not None:
                counts[events.index(batch.event), :2] += batch.truth.counts
                counts[events.index(batch.event), 2] += batch.pt.count if batch.pt else 0
        with self.world.stopwatch.time("reduce"):
            counts = sum_on(counts, self.world.ranks.device)
        if self.settings.step_loss == "per_edge":
            counts = counts.sum(dim=0).expand_as(counts)
        return dict(zip(events, counts, strict=True))


def _sum(parts: Sequence[Tensor]) -> Tensor:
    return sum(parts[1:], start=parts[0])


_MORE_MEMORY = (
    "resume with a lower training.memory_gib, so that events are trained in more sectors, or on "
    "more ranks; `bigtrk plan` says what events need"
)


def train(run: Run) -> None:
    """Trains a run to its end and writes its model. Collective. Raises StoppedError after a signal,
    with the state saved; InputError if the loss is not finite without a spike guard, there are too
    many spikes, a rank's memory runs out, or a checkpoint cannot be written.
    """
    ranks, trainer = run.job.ranks, Trainer(run)
    if run.found:
        trainer.load(run.found)
    with report_out_of_memory(f"rank {ranks.rank}", _MORE_MEMORY):
        trainer.train()
    announce_best(ranks, trainer.best, trainer.end)
    run.checkpoints.wait()
    if trainer.stopped:
        folder = shell_word(run.folder)
        way = f"--resume {folder} instead of the settings, started by {ranks.launcher} again"
        if ranks.launcher == "python":
            way = f"'bigtrk resume {folder}'"
        raise StoppedError(
            f"{run.stop.agreed_reason()}: stopped after step {trainer.step}, saved; continue with "
            f"{way}"
        )
    run.writer.save_model(trainer.end, trainer.best, trainer.step)


class Trainer:
    """The loop over a run. epoch, step: the next ones. stopped: a rank was asked to stop."""

    def __init__(self, run: Run) -> None:
        self.run, self.parts = run, run.parts
        self.ranks, self.configuration = run.job.ranks, run.job.configuration
        self.settings = self.configuration.training
        self.epoch = self.step = 0
        self.plateau, self.history, self.totals = Plateau(), LossHistory(), EpochTotals()
        metric = self.settings.best.metric
        self.best = Best(metric) if metric else None
        self.stopped = False
        self._clock = Clock(self.settings, self.ranks.device)
        self._meter, self._prefetcher = open_meter(self.ranks), Prefetcher()
        chosen, embeds = self.configuration.negatives, self.configuration.model.kind == "hit"
        self._runner = StepRunner(
            engine=self.parts.engine,
            settings=self.settings,
            world=self.parts.world,
            stop=run.stop,
            pairs=self.configuration.pairs if embeds else None,
            negatives=chosen if chosen.are_chosen else None,
        )

    @property
    def end(self) -> End | None:
        """The reason to end the run after this epoch; None to go on."""
        if self.epoch >= self.settings.epochs:
            return "epochs"
        if self.best and self.best.is_over(self.settings.best.patience):
            return "patience"
        return "minutes" if self._clock.out_of_time else None

    @property
    def first_step(self) -> int:
        """Returns the number of the epoch's first step, counted from the run's start."""
        return self.epoch * self.parts.steps.per_epoch

    def train(self) -> None:
        """Trains the remaining epochs, until the run ends or must stop. Collective."""
        run, lines, is_first = self.run, EpochLines(self.ranks, self.settings), True
        left = self.parts.schedule.total_steps - self.step
        profiler = (
            profiled(run.folder, self.ranks, left)
            if self.configuration.profile and left
            else nullcontext(lambda: None)
        )
        with profiler as after_step:
            while not self.end and not self.stopped:
                routes = self.parts.steps.of(self.epoch)
                if is_first:
                    stored = max(source.parts for source in run.job.events.train)
                    announce(self.ranks, run.folder, self.parts.record, routes, stored)
                    is_first = False
                durations, seconds = self._train_steps(routes, after_step)
                if self.stopped:
                    return
                record = self._epoch_record(routes, durations, seconds)
                run.writer.log(record)
                if self.step == self.first_step + len(routes):
                    self._end_epoch(record)
                lines.show(record)

    def _train_steps(
        self, routes: Sequence[RoutedStep], after_step: Callable[[], None]
    ) -> tuple[list[float], float]:
        """Trains the steps left, and saves; returns the seconds of each and of all. Collective."""
        before, durations = self._clock.seconds, list[float]()
        self.parts.world.stopwatch.take()
        self._meter.start()
        first, last = self.first_step, self.first_step + len(routes)
        every = self.settings.checkpoint_every
        left = {number: routes[number - first] for number in range(self.step, last)}
        check_routes([*left.values()])
        reader = self.parts.steps.reader(self.epoch, self.parts.maker)
        loader = Loader(reader, self.parts.world, self._prefetcher)
        shares = loader.steps([route.micro_steps for route in left.values()])
        start = time.perf_counter()
        for number, route in self._with_progress(left):
            self.step = number
            record = self._train_step(route, shares, start)
            after_step()
            if self._clock.look() and not self.stopped:
                with self.parts.world.stopwatch.paused():
                    found = self._validated()
                trained = self._clock.seconds
                self.run.writer.log(
                    ValidationRecord(epoch=self.epoch, step=number, seconds=trained, **found)
                )
            durations.append(record.seconds)
            self.step, self.totals = number + 1, self.totals.after(record)
            is_over = self.stopped or self._clock.out_of_time
            is_due = every is not None and self.step % every == 0
            if self.stopped or (self.step < last and (is_over or is_due)):
                self.save()
            if is_over:
                break
            start = time.perf_counter()
        return durations, self._clock.seconds - before

    def _train_step(
        self, route: RoutedStep, shares: Iterator[list[Share]], start: float
    ) -> StepRecord:
        """Trains one step, timed from `start`, and returns its record. Collective."""
        lr, every = self.parts.schedule.rate(self.step, self.plateau), self.settings.norms_every
        norms = every > 0 and self.step % every == 0
        limit = self.history.limit(self.settings.spike_threshold)
        with traced(f"step {self.step}"):
            result = self._runner.run(route.events, next(shares), lr, norms, limit, self.step)
        if self.parts.averages and not result.spike:
            self.parts.averages.update()
        self.stopped = result.stop
        seconds = time.perf_counter() - start
        self._clock.seconds += seconds
        sources = self.run.job.events.train
        cuts = {sources[i].name: cut for i, cut in route.cuts.items()}
        record = StepRecord(
            epoch=self.epoch,
            step=self.step,
            loss=_finite(result.loss),
            pt_loss=_finite(result.pt_loss),
            spike=result.spike,
            lr=lr,
            events=len(route.events),
            edges=result.edges,
            micro_steps=len(route.micro_steps),
            imbalance=route.imbalance,
            routes={name: cut.parts for name, cut in cuts.items()},
            ranks={name: cut.ranks for name, cut in cuts.items() if cut.ranks != cut.parts},
            norms=result.norms,
            seconds=seconds,
        )
        self.run.writer.log(record)
        self.history = self.history.after(result.loss, result.spike)
        check_spikes(self.history.spikes_since)
        return record

    def _end_epoch(self, record: EpochRecord) -> None:
        """Updates the schedule and the best epoch after an epoch, and saves. Collective."""
        found = record.validation or record.embedding
        loss = found.loss if found else record.train_loss
        patience = self.configuration.optimizer.plateau_patience
        self.plateau = self.plateau.after(math.nan if loss is None else loss, patience)
        self.best = self.best and self.best.after(record, self.step)
        self.epoch, self.totals = self.epoch + 1, EpochTotals()
        self.save()

    def _validated(self) -> dict[str, Any]:
        """Returns the validation metrics for a record, if there are events. Collective."""
        engine, maker, sources = self.parts.engine, self.parts.maker, self.run.job.events.validation
        if not sources:
            return {}
        with traced("validation"):
            if self._runner.pairs is not None:
                pairs = self._runner.pairs
                return {"embedding": validate_embedding(engine.model, maker, sources, pairs)}
            edges = validate(engine.model, maker, sources, self.parts.scoring, self.settings)
            return {"validation": edges}

    def _epoch_record(
        self, routes: Sequence[RoutedStep], durations: Sequence[float], seconds: float
    ) -> EpochRecord:
        """Validates, and returns the record of an epoch that took `seconds`. Collective."""
        totals, spikes = self.totals, set(self.totals.left_out)
        learnt = [i for i in range(self.first_step, self.step) if i not in spikes]
        used = usage(self.parts.world, self._meter, seconds)
        validated, average = self._validated(), None
        if self.parts.averages is not None and self.run.job.events.validation:
            with self.parts.averages.in_model():
                average = AverageRecord(**self._validated())
        return EpochRecord(
            epoch=self.epoch,
            steps=totals.steps,
            spikes=len(spikes),
            planned_steps=len(routes),
            events=len({e for i in learnt for e in routes[i - self.first_step].events}),
            edges=totals.edges,
            train_loss=totals.loss / totals.events if totals.events else None,
            lr=self.parts.schedule.rate(max(self.step - 1, 0), self.plateau),
            seconds=totals.seconds,
            edges_per_second=totals.edges / totals.seconds,
            batch_seconds=statistics.median(durations) if durations else None,
            **used,
            **validated,
            average=average,
        )

    def _with_progress(self, left: Mapping[int, RoutedStep]) -> Iterable[tuple[int, RoutedStep]]:
        """Yields the numbered steps, with a progress bar on the first rank."""
        if not self.ranks.is_first or not left:
            return left.items()
        epochs = self.settings.epochs
        lines = MOST_LINES // (2 * epochs)  # epochs have lines of their own
        return follow(left.items(), len(left), f"epoch {self.epoch + 1}/{epochs}", lines)

    def save(self) -> None:
        """Starts to write a checkpoint; the training goes on meanwhile. Collective."""
        progress = Progress(
            epoch=self.epoch,
            cursor=self.step - self.first_step,
            step=self.step,
            plateau=self.plateau,
            history=self.history,
            totals=self.totals,
            best=self.best,
        )
        with traced("checkpoint"):
            self.run.checkpoints.save(progress)

    def load(self, found: Found) -> None:
        """Restores the state of the checkpoint `found`. Collective."""
        with traced("loading the checkpoint"):
            progress = self.run.checkpoints.load(found)
        self.epoch, self.step = progress.epoch, progress.step
        self.plateau, self.history = progress.plateau, progress.history
        self.totals, self.best = progress.totals, progress.best
