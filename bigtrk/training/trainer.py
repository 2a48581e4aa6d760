"""The loop over epochs."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bigtrk.console import MOST_LINES, follow
from bigtrk.errors import InputError
from bigtrk.parallel.engines.averages import Averages
from bigtrk.parallel.engines.engine import Engine
from bigtrk.parallel.routing import Router
from bigtrk.parallel.world import World
from bigtrk.process.threads import Prefetcher
from bigtrk.records.metrics import (
    AverageRecord,
    EmbeddingMetrics,
    EpochRecord,
    MeanEdgeMetrics,
    MetricsRecord,
    StepRecord,
    ValidationRecord,
)
from bigtrk.records.run import End
from bigtrk.tracing import traced
from bigtrk.training.best import Best
from bigtrk.training.checkpoint.checkpointer import Checkpointer
from bigtrk.training.checkpoint.folder import Found
from bigtrk.training.checkpoint.manifest import EpochTotals, Progress
from bigtrk.training.data.batch import BatchMaker, Loader
from bigtrk.training.data.event_source import Events
from bigtrk.training.embedding import validate_embedding
from bigtrk.training.evaluation.scoring import validate
from bigtrk.training.guards import MOST_IN_A_ROW, LossHistory, StopRequest, check_spikes
from bigtrk.training.monitoring.meter import Meter, usage
from bigtrk.training.schedule import Clock, Plateau, Schedule
from bigtrk.training.settings import Configuration, PairSettings
from bigtrk.training.step import StepResult, StepRunner
from bigtrk.training.steps.epoch_steps import EpochSteps, RoutedStep, check_routes


@dataclass
class Trainer:
    """Trains epoch by epoch; every step and epoch becomes a record for `log`.

    scoring: lays the events of validation over the ranks.
    """

    configuration: Configuration
    world: World
    engine: Engine
    epoch_steps: EpochSteps
    scoring: Router
    schedule: Schedule
    events: Events
    maker: BatchMaker
    meter: Meter
    log: Callable[[MetricsRecord], None]
    checkpoints: Checkpointer
    clock: Clock
    stop: StopRequest
    epoch: int = 0
    step: int = 0
    plateau: Plateau = field(default_factory=Plateau)
    history: LossHistory = field(default_factory=LossHistory)
    totals: EpochTotals = field(default_factory=EpochTotals)
    best: Best | None = None
    averages: Averages | None = None
    stopped: bool = False
    prefetcher: Prefetcher = field(default_factory=Prefetcher, init=False)

    @property
    def ends(self) -> bool:
        """Says whether the run is to end here, though there are steps left."""
        return self.stopped or self.clock.out_of_time

    @property
    def end(self) -> End | None:
        """Says what ends the run after this epoch; None: nothing yet."""
        if self.epoch >= self.configuration.training.epochs:
            return "epochs"
        if self.best and self.best.is_over(self.configuration.training.best.patience):
            return "patience"
        return "minutes" if self.clock.out_of_time else None

    @property
    def first_step(self) -> int:
        """Returns the number of the epoch's first step."""
        return self.epoch * self.epoch_steps.per_epoch

    def save(self) -> None:
        """Writes a checkpoint. Collective."""
        with traced("checkpoint"):
            self._save()

    def _save(self) -> None:
        progress = Progress(
            epoch=self.epoch,
            cursor=self.step - self.first_step,
            step=self.step,
            plateau=self.plateau,
            history=self.history,
            totals=self.totals.before(self.step),
            best=self.best,
        )
        self.checkpoints.save(progress)

    def load(self, found: Found | None = None) -> None:
        """Returns to the checkpoint `found`, or else to the newest good one. Collective."""
        with traced("loading the checkpoint"):
            progress = self.checkpoints.load(found)
        self.epoch, self.step = progress.epoch, progress.step
        self.plateau, self.history = progress.plateau, progress.history
        self.totals, self.best = progress.totals, progress.best

    def run(
        self,
        after_step: Callable[[], None],
        started: Callable[[Sequence[RoutedStep]], None],
        ended: Callable[[EpochRecord], None],
    ) -> None:
        """Trains the epochs that are left, or until the run is to end. Collective.

        after_step: called after each step. started: before each epoch, with its steps. ended: after
        each that was not stopped, with its record.

        Raises:
            InputError: as run_epoch.
        """
        while not self.end and not self.stopped:
            routes = self.epoch_steps.of(self.epoch)
            started(routes)
            record = self.run_epoch(routes, after_step)
            if record:
                ended(record)

    def run_epoch(
        self, routes: Sequence[RoutedStep], after_step: Callable[[], None]
    ) -> EpochRecord | None:
        """Trains what is left of the epoch's steps, validates, and saves; returns the epoch's
        record, or None if the run was asked to stop: then it has only saved.

        Collective. routes: all steps of the epoch. after_step: called after each of them.

        Raises:
            InputError: a loss is not finite and there is no spike guard, there are too many
                spikes, or a checkpoint cannot be written.
        """
        self.world.stopwatch.take()
        self.meter.start()
        before, epoch = self.clock.seconds, self.epoch
        durations = self._train(routes, after_step)
        if self.stopped:
            return None
        totals, left_out = self.totals, set(self.totals.left_out)
        learnt = [i for i in range(self.first_step, self.step) if i not in left_out]
        record = EpochRecord(
            epoch=epoch,
            steps=totals.steps,
            spikes=len(left_out),
            planned_steps=len(routes),
            events=len({e for i in learnt for e in routes[i - self.first_step].events}),
            edges=totals.edges,
            train_loss=totals.loss / totals.events if totals.events else None,
            lr=self.schedule.rate(max(self.step - 1, 0), self.plateau),
            seconds=totals.seconds,
            edges_per_second=totals.edges / totals.seconds,
            batch_seconds=statistics.median(durations) if durations else None,
            **usage(self.world, self.meter, self.clock.seconds - before),
            validation=self._validate_edges(),
            embedding=self._validate_hits(),
            average=self._validate_average(),
        )
        self.log(record)
        if self.step == self.first_step + len(routes):
            self._end_epoch(record)
        return record

    def _end_epoch(self, record: EpochRecord) -> None:
        self._watch(record)
        self.best = self.best and self.best.after(record, self.step)
        self.epoch, self.totals = self.epoch + 1, EpochTotals()
        self.save()

    def _watch(self, record: EpochRecord) -> None:
        """Tells the plateau schedule the epoch's loss, which is the same on all ranks."""
        found = record.validation or record.embedding
        loss = found.loss if found else record.train_loss
        patience = self.configuration.optimizer.plateau_patience
        self.plateau = self.plateau.after(math.nan if loss is None else loss, patience)

    @property
    def _pairs(self) -> PairSettings | None:
        """Returns the pairs to train on, where the model embeds hits."""
        return self.configuration.pairs if self.configuration.model.kind == "hit" else None

    def _validate_average(self) -> AverageRecord | None:
        if self.averages is None or not self.events.validation:
            return None
        with self.averages.in_model():
            return AverageRecord(validation=self._validate_edges(), embedding=self._validate_hits())

    def _validate_edges(self) -> MeanEdgeMetrics | None:
        if self._pairs is not None or not self.events.validation:
            return None
        model, training = self.engine.model, self.configuration.training
        with traced("validation"):
            return validate(model, self.maker, self.events.validation, self.scoring, training)

    def _validate_hits(self) -> EmbeddingMetrics | None:
        if self._pairs is None or not self.events.validation:
            return None
        with traced("validation"):
            return validate_embedding(
                self.engine.model, self.maker, self.events.validation, self._pairs
            )

    def _train(self, routes: Sequence[RoutedStep], after_step: Callable[[], None]) -> list[float]:
        """Trains until the epoch or the time ends; returns the seconds of each step trained here.

        After a roll-back the steps since the checkpoint are trained again, without the spike.
        """
        rolls_back = self.configuration.training.spike_guard == "roll_back"
        end, durations = self.first_step + len(routes), []
        while self.step < end and not self.ends:
            numbers = [i for i in range(self.step, end) if i not in self.totals.left_out]
            numbered = {i: routes[i - self.first_step] for i in numbers}
            for record in self._steps(numbered, after_step):
                durations.append(record.seconds)
                self.step, self.totals = self.step + 1, self.totals.after(record)
                if record.spike and rolls_back and not self.clock.out_of_time:
                    self._roll_back(min(MOST_IN_A_ROW, len(routes)))
                    break
                if self.stopped or (self.step < end and self._checkpoint_is_due()):
                    self.save()
                if self.ends:
                    break
            else:
                self.step = end
        return durations

    def _roll_back(self, most: int) -> None:
        """Returns to the newest checkpoint, knowing the spikes found since.

        Raises:
            InputError: there are too many, or only a checkpoint of an earlier epoch is good.
        """
        epoch, known = self.epoch, self.totals
        check_spikes(len(known.left_out), most)
        self.load()
        if self.epoch != epoch:
            raise InputError(
                "there is no good checkpoint of this epoch to roll back to; resume the run, which "
                "goes on from an earlier epoch"
            )
        self.totals = replace(self.totals, left_out=known.left_out, seconds=known.seconds)

    def _checkpoint_is_due(self) -> bool:
        every = self.configuration.training.checkpoint_every
        return self.clock.out_of_time or (every is not None and self.step % every == 0)

    def _steps(
        self, routes: Mapping[int, RoutedStep], after_step: Callable[[], None]
    ) -> Iterator[StepRecord]:
        """Trains `routes`, by the number of the step."""
        check_routes(list(routes.values()))
        training, epoch = self.configuration.training, self.epoch
        negatives = self.configuration.negatives
        runner = StepRunner(
            engine=self.engine,
            settings=training,
            world=self.world,
            stop=self.stop,
            pairs=self._pairs,
            negatives=negatives if negatives.are_chosen else None,
        )
        loader = Loader(self.epoch_steps.reader(epoch, self.maker), self.world, self.prefetcher)
        shares = loader.steps([step.micro_steps for step in routes.values()])
        start = time.perf_counter()
        for number, step in self._follow(list(routes.items())):
            self.step = number
            lr, due = self.schedule.rate(number, self.plateau), self._norms_are_due()
            limit = self.history.limit(training.spike_threshold)
            with traced(f"step {number}"):
                result = runner.run(step.events, next(shares), lr, due, limit, number)
            if self.averages and not result.spike:
                self.averages.update()
            self.stopped = result.stop
            seconds = time.perf_counter() - start
            self.clock.seconds += seconds
            record = self._record(number, step, result, lr, seconds)
            self.log(record)
            self.history = self.history.after(result.loss, result.spike)
            check_spikes(self.history.spikes_since)
            after_step()
            if self.clock.look() and not self.stopped:
                self._validate_on_the_way()
            yield record
            start = time.perf_counter()

    def _record(
        self, number: int, step: RoutedStep, result: StepResult, lr: float, seconds: float
    ) -> StepRecord:
        return StepRecord(
            epoch=self.epoch,
            step=number,
            loss=_finite(result.loss),
            pt_loss=_finite(result.pt_loss),
            spike=result.spike,
            lr=lr,
            events=len(step.events),
            edges=result.edges,
            micro_steps=len(step.micro_steps),
            imbalance=step.imbalance,
            routes={self.events.train[i].name: cut.parts for i, cut in step.cuts.items()},
            ranks={
                self.events.train[i].name: cut.ranks
                for i, cut in step.cuts.items()
                if cut.ranks != cut.parts
            },
            norms=result.norms.record() if result.norms else None,
            seconds=seconds,
        )

    def _validate_on_the_way(self) -> None:
        with self.world.stopwatch.paused():
            edges, hits = self._validate_edges(), self._validate_hits()
        self.log(
            ValidationRecord(
                epoch=self.epoch,
                step=self.step,
                seconds=self.clock.seconds,
                validation=edges,
                embedding=hits,
            )
        )

    def _norms_are_due(self) -> bool:
        every = self.configuration.training.norms_every
        return every > 0 and self.step % every == 0

    def _follow(self, routes: Sequence[tuple[int, RoutedStep]]) -> Iterator[tuple[int, RoutedStep]]:
        if not self.world.ranks.is_first:
            return iter(routes)
        epochs = self.configuration.training.epochs
        lines = MOST_LINES // (2 * epochs)  # epochs have lines of their own
        return iter(follow(routes, len(routes), f"epoch {self.epoch + 1}/{epochs}", lines))


def _finite(loss: float | None) -> float | None:
    """Returns a loss as a record has it."""
    return loss if loss is not None and math.isfinite(loss) else None
