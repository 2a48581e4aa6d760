"""The loop over epochs."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bigtrk.console import follow
from bigtrk.parallel.collectives import all_max
from bigtrk.parallel.engine import Engine
from bigtrk.parallel.groups import BlockGroups
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.tracing import traced
from bigtrk.training.batch import BatchMaker
from bigtrk.training.epoch_steps import EpochSteps
from bigtrk.training.event_source import EventSource
from bigtrk.training.loader import Loader
from bigtrk.training.meter import Meter
from bigtrk.training.routed_step import RoutedStep, check_routes
from bigtrk.training.schedule import Plateau, Schedule
from bigtrk.training.settings import Configuration
from bigtrk.training.spikes import MOST_IN_A_ROW, LossHistory, check_spikes
from bigtrk.training.step import StepRunner
from bigtrk.training.usage import usage
from bigtrk.training.validation import validate

Record = dict[str, Any]


@dataclass
class Trainer:
    """Trains epoch by epoch; every step and epoch becomes a record for `log`."""

    configuration: Configuration
    ranks: Ranks
    engine: Engine
    epoch_steps: EpochSteps
    schedule: Schedule
    train: list[EventSource]
    validation: list[EventSource]
    groups: BlockGroups
    maker: BatchMaker
    stopwatch: Stopwatch
    meter: Meter
    log: Callable[[Record], None]
    step: int = 0
    plateau: Plateau = field(default_factory=Plateau)
    history: LossHistory = field(default_factory=LossHistory)
    trained_seconds: float = 0.0
    validated_at: float = 0.0  # of trained_seconds, the last time on the way
    out_of_time: bool = False

    def run_epoch(
        self,
        epoch: int,
        routes: Sequence[RoutedStep],
        after_step: Callable[[], None],
        roll_back: Callable[[], object],
    ) -> Record:
        """Train the steps `routes`, then validate; returns the epoch's record. Collective.

        after_step: called after each of them. roll_back: restores this trainer as it was after the
        epoch before.

        Raises:
            InputError: a loss is not finite and there is no spike guard, or there are too many
                spikes.
        """
        self.stopwatch.take()
        self.meter.start()
        first, before = self.step, self.trained_seconds
        records = self._train(epoch, routes, after_step, roll_back)
        seconds = self.trained_seconds - before
        learnt = [record for record in records if not record["spike"]]
        edges = sum(record["edges"] for record in learnt)
        events = sum(record["events"] for record in learnt)
        # Weighted by events: a short last step counts for what it holds.
        loss = sum(record["loss"] * record["events"] for record in learnt)
        record = {
            "kind": "epoch",
            "epoch": epoch,
            "steps": len(learnt),
            "spikes": len(records) - len(learnt),
            "planned_steps": len(routes),
            "events": len({i for r in learnt for i in routes[r["step"] - first].events}),
            "edges": edges,
            "train_loss": loss / events if events else None,
            "seconds": seconds,
            "edges_per_second": edges / seconds,
            "batch_seconds": statistics.median(record["seconds"] for record in records),
            **usage(self.stopwatch, self.meter, seconds, self.ranks.device),
            "validation": self._validate(),
        }
        self.log(record)
        self._watch(record)
        return record

    def _watch(self, record: Record) -> None:
        """Tell the plateau schedule the epoch's loss, which is the same on all ranks."""
        scores = record["validation"] or {"loss": record["train_loss"]}
        loss = math.nan if scores["loss"] is None else scores["loss"]
        self.plateau = self.plateau.after(loss, self.configuration.optimizer.plateau_patience)

    def _validate(self) -> Record | None:
        if not self.validation:
            return None
        return validate(
            self.engine.model,
            self.maker,
            self.groups,
            self.validation,
            self.configuration.training,
        )

    def _train(
        self,
        epoch: int,
        routes: Sequence[RoutedStep],
        after_step: Callable[[], None],
        roll_back: Callable[[], object],
    ) -> list[Record]:
        """The records of the epoch's steps; after a roll-back the others are trained again."""
        rolls_back = self.configuration.training.spike_guard == "roll_back"
        numbered = dict(enumerate(routes, start=self.step))
        spikes: list[Record] = []
        end, most = self.step + len(routes), min(MOST_IN_A_ROW, len(routes))
        while True:
            records = []
            for record in self._steps(epoch, numbered, after_step):
                records.append(record)
                if self.out_of_time or (record["spike"] and rolls_back):
                    break
            else:
                self.step = end
                return [*spikes, *records]
            if self.out_of_time:
                self.step += 1
                return [*spikes, *records]
            spikes.append(records.pop())
            check_spikes(len(spikes), most)
            del numbered[spikes[-1]["step"]]
            roll_back()

    def _steps(
        self, epoch: int, routes: Mapping[int, RoutedStep], after_step: Callable[[], None]
    ) -> Iterator[Record]:
        """Train `routes`, by the number of the step."""
        check_routes(list(routes.values()))
        training = self.configuration.training
        runner = StepRunner(self.engine, training, self.ranks, self.stopwatch)
        loader = Loader(self.epoch_steps.reader(epoch, self.maker), self.ranks.rank, self.stopwatch)
        batches = loader.steps([step.micro_steps for step in routes.values()])
        start = time.perf_counter()
        for number, step in self._follow(list(routes.items()), epoch):
            self.step = number
            lr, due = self.schedule.rate(number, self.plateau), self._norms_are_due()
            limit = self.history.limit(training.spike_threshold)
            with traced(f"step {number}"):
                result = runner.run(step.events, next(batches), lr, due, limit)
            seconds = time.perf_counter() - start
            self.trained_seconds += seconds
            record = {
                "kind": "step",
                "epoch": epoch,
                "step": number,
                "loss": _finite(result.loss),
                "pt_loss": _finite(result.pt_loss),
                "spike": result.spike,
                "lr": lr,
                "events": len(step.events),
                "edges": result.edges,
                "micro_steps": len(step.micro_steps),
                "imbalance": step.imbalance,
                "mini_batch": step.mini_batch,
                "routes": {self.train[i].name: parts for i, parts in step.parts.items()},
                "norms": result.norms.record() if result.norms else None,
                "seconds": seconds,
            }
            self.log(record)
            self.history = self.history.after(result.loss, result.spike)
            check_spikes(self.history.spikes_since)
            after_step()
            self._look_at_the_clock(epoch)
            yield record
            start = time.perf_counter()

    def _look_at_the_clock(self, epoch: int) -> None:
        """Validate, or end the run, when that is due by the clock of any rank: all do alike."""
        training, now = self.configuration.training, self.trained_seconds
        if training.minutes is None and training.validate_minutes is None:
            return
        ends = _exceeds(now, training.minutes)
        validates = _exceeds(now - self.validated_at, training.validate_minutes)
        found = all_max([ends, validates], self.ranks.device)
        self.out_of_time = bool(found[0])
        if found[1] and not self.out_of_time:
            self.validated_at = self.trained_seconds
            self._validate_on_the_way(epoch)

    def _validate_on_the_way(self, epoch: int) -> None:
        with self.stopwatch.paused():
            scores = self._validate()
        record = {"kind": "validation", "epoch": epoch, "step": self.step}
        self.log({**record, "seconds": self.trained_seconds, "validation": scores})

    def _norms_are_due(self) -> bool:
        every = self.configuration.training.norms_every
        return every > 0 and self.step % every == 0

    def _follow(
        self, routes: Sequence[tuple[int, RoutedStep]], epoch: int
    ) -> Iterator[tuple[int, RoutedStep]]:
        if not self.ranks.is_first:
            return iter(routes)
        epochs = self.configuration.training.epochs
        return iter(follow(routes, len(routes), f"epoch {epoch + 1}/{epochs}"))


def _finite(loss: float | None) -> float | None:
    """As a record has it."""
    return loss if loss is not None and math.isfinite(loss) else None


def _exceeds(seconds: float, minutes: float | None) -> bool:
    return minutes is not None and seconds > 60 * minutes
