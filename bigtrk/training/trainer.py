"""The training of an open run: one loop over epochs, one over steps."""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TypedDict

from bigtrk.console import MOST_LINES, follow
from bigtrk.errors import StoppedError
from bigtrk.process import Prefetcher
from bigtrk.records.metrics import (
    AverageRecord,
    EmbeddingMetrics,
    EpochRecord,
    MeanEdgeMetrics,
    StepRecord,
    ValidationRecord,
)
from bigtrk.records.run import End
from bigtrk.tracing import traced
from bigtrk.training.best import search_of
from bigtrk.training.checkpoint.folder import Found
from bigtrk.training.checkpoint.manifest import EpochTotals, Progress
from bigtrk.training.data.batch import Loader, Share
from bigtrk.training.embedding import validate_embedding
from bigtrk.training.evaluation.scoring import validate
from bigtrk.training.guards import LossHistory, check_spikes, report_out_of_memory
from bigtrk.training.monitoring.announce import EpochLines, announce, announce_best
from bigtrk.training.monitoring.meter import open_meter, profiled, usage
from bigtrk.training.run import Run
from bigtrk.training.schedule import Clock, Plateau
from bigtrk.training.step import StepRunner
from bigtrk.training.steps.epoch_steps import RoutedStep, check_routes

_MORE_MEMORY = (
    "resume with a lower training.memory_gib, so that events are trained in more sectors, or on "
    "more ranks; `bigtrk plan` says what events need"
)


class Validated(TypedDict, total=False):
    """The entries of a record: those of an edge model, or of one that embeds hits."""

    validation: MeanEdgeMetrics
    embedding: EmbeddingMetrics


def train(run: Run) -> None:
    """Trains a run to its end, and writes its model. Collective.

    Raises:
        InputError: a loss is not finite and there is no spike guard, there are too many spikes, a
            rank's memory runs out, or a checkpoint cannot be written.
        StoppedError: a signal, or the launcher's end, asked for it; the state is saved.
    """
    ranks, trainer = run.job.ranks, Trainer(run)
    if run.found:
        trainer.load(run.found)
    with report_out_of_memory(f"rank {ranks.rank}", _MORE_MEMORY):
        trainer.train()
    announce_best(ranks, trainer.best, trainer.end)
    run.checkpoints.wait()
    if trainer.stopped:
        raise StoppedError(
            f"{run.stop.agreed_reason()}: stopped after step {trainer.step}, saved; continue with "
            f"--resume {run.folder}"
        )
    run.writer.save_model(trainer.end, trainer.best)


class Trainer:
    """The progress of a run, and the loops that make it.

    epoch and step count from 0: those that come next. stopped: a rank was asked to stop.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.parts = run, run.parts
        self.ranks, self.configuration = run.job.ranks, run.job.configuration
        self.settings = self.configuration.training
        self.epoch = self.step = 0
        self.plateau, self.history, self.totals = Plateau(), LossHistory(), EpochTotals()
        self.best = search_of(self.configuration)
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
        """The reason to end the run after this epoch, if there is one."""
        if self.epoch >= self.settings.epochs:
            return "epochs"
        if self.best and self.best.is_over(self.settings.best.patience):
            return "patience"
        return "minutes" if self._clock.out_of_time else None

    @property
    def first_step(self) -> int:
        """The number of the epoch's first step."""
        return self.epoch * self.parts.steps.per_epoch

    def train(self) -> None:
        """Trains the epochs that are left, or until the run is to end. Collective."""
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
        """Trains the steps that are left, until the epoch ends or the run is to end, after which it
        has saved. Returns the seconds of each step, and those of them all. Collective.
        """
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
        for number, route in self._shown(left):
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
        """Trains one step, whose time counts from `start`, and records it. Collective."""
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
        names = [source.name for source in self.run.job.events.train]
        record = result.record(self.epoch, self.step, route, names, lr, seconds)
        self.run.writer.log(record)
        self.history = self.history.after(result.loss, result.spike)
        check_spikes(self.history.spikes_since)
        return record

    def _end_epoch(self, record: EpochRecord) -> None:
        """Adapts the schedule and the best epoch to this one, and saves. Collective."""
        found = record.validation or record.embedding
        loss = found.loss if found else record.train_loss
        patience = self.configuration.optimizer.plateau_patience
        self.plateau = self.plateau.after(math.nan if loss is None else loss, patience)
        self.best = self.best and self.best.after(record, self.step)
        self.epoch, self.totals = self.epoch + 1, EpochTotals()
        self.save()

    def _validated(self) -> Validated:
        """Scores the events of validation, if there are any. Collective."""
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
        """Validates, and makes the record of the epoch, trained for `seconds` here. Collective."""
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

    def _shown(self, left: Mapping[int, RoutedStep]) -> Iterable[tuple[int, RoutedStep]]:
        """Yields steps under the progress bar of the first rank."""
        if not self.ranks.is_first or not left:
            return left.items()
        epochs = self.settings.epochs
        lines = MOST_LINES // (2 * epochs)  # epochs have lines of their own
        return follow(left.items(), len(left), f"epoch {self.epoch + 1}/{epochs}", lines)

    def save(self) -> None:
        """Writes a checkpoint, while the training goes on. Collective."""
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
        """Returns to the checkpoint `found`. Collective."""
        with traced("loading the checkpoint"):
            progress = self.run.checkpoints.load(found)
        self.epoch, self.step = progress.epoch, progress.step
        self.plateau, self.history = progress.plateau, progress.history
        self.totals, self.best = progress.totals, progress.best
