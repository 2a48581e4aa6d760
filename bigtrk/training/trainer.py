"""The loop over epochs."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bigtrk.console import follow
from bigtrk.parallel.engine import Engine
from bigtrk.parallel.groups import BlockGroups
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Router
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.tracing import traced
from bigtrk.training.batch import BatchMaker
from bigtrk.training.event_source import EventSource
from bigtrk.training.loader import Loader
from bigtrk.training.routed_step import RoutedStep, check_routes
from bigtrk.training.schedule import Plateau, Schedule
from bigtrk.training.settings import Configuration
from bigtrk.training.spikes import MOST_IN_A_ROW, LossHistory, check_spikes
from bigtrk.training.step import StepRunner
from bigtrk.training.steps import step_events
from bigtrk.training.usage import usage
from bigtrk.training.validation import validate

Record = dict[str, Any]


@dataclass
class Trainer:
    """Trains epoch by epoch; every step and epoch becomes a record for `log`."""

    configuration: Configuration
    ranks: Ranks
    engine: Engine
    router: Router
    schedule: Schedule
    train: list[EventSource]
    validation: list[EventSource]
    groups: BlockGroups
    maker: BatchMaker
    stopwatch: Stopwatch
    log: Callable[[Record], None]
    step: int = 0
    plateau: Plateau = field(default_factory=Plateau)
    history: LossHistory = field(default_factory=LossHistory)

    def routed(self, epoch: int) -> list[RoutedStep]:
        """The steps of an epoch laid over the ranks."""
        training = self.configuration.training
        plan = step_events(len(self.train), training.events_per_step, training.seed, epoch)
        return [RoutedStep(events, self.router.route(events)) for events in plan]

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
        start = time.perf_counter()
        records = self._train(epoch, routes, after_step, roll_back)
        seconds = time.perf_counter() - start
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
            "events": events,
            "edges": edges,
            "train_loss": loss / events if events else None,
            "seconds": seconds,
            "edges_per_second": edges / seconds,
            "batch_seconds": statistics.median(record["seconds"] for record in records),
            **usage(self.stopwatch, seconds, self.ranks.device),
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
                if record["spike"] and rolls_back:
                    break
            else:
                self.step = end
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
        loader = Loader(self.maker, self.train, self.ranks.rank, self.stopwatch)
        batches = loader.steps([step.micro_steps for step in routes.values()])
        for number, step in self._follow(list(routes.items()), epoch):
            self.step, start = number, time.perf_counter()
            lr, due = self.schedule.rate(number, self.plateau), self._norms_are_due()
            limit = self.history.limit(training.spike_threshold)
            with traced(f"step {number}"):
                result = runner.run(step.events, next(batches), lr, due, limit)
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
                "routes": {self.train[i].name: parts for i, parts in step.parts.items()},
                "norms": result.norms.record() if result.norms else None,
                "seconds": time.perf_counter() - start,
            }
            self.log(record)
            self.history = self.history.after(result.loss, result.spike)
            check_spikes(self.history.spikes_since)
            after_step()
            yield record

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
