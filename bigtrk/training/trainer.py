"""The loop over epochs."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
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

    def routed(self, epoch: int) -> list[RoutedStep]:
        """The steps of an epoch laid over the ranks."""
        training = self.configuration.training
        plan = step_events(len(self.train), training.events_per_step, training.seed, epoch)
        return [RoutedStep(events, self.router.route(events)) for events in plan]

    def run_epoch(
        self, epoch: int, routes: Sequence[RoutedStep], after_step: Callable[[], None]
    ) -> Record:
        """Train the steps `routes`, then validate; returns the epoch's record. Collective.

        after_step: called after each of them.
        """
        self.stopwatch.take()
        start = time.perf_counter()
        records = list(self._steps(epoch, routes, after_step))
        seconds = time.perf_counter() - start
        edges = sum(record["edges"] for record in records)
        record = {
            "kind": "epoch",
            "epoch": epoch,
            "steps": len(records),
            "events": len(self.train),
            "edges": edges,
            # Weighted by events: a short last step counts for what it holds.
            "train_loss": sum(r["loss"] * r["events"] for r in records) / len(self.train),
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
        patience = self.configuration.optimizer.plateau_patience
        self.plateau = self.plateau.after(scores["loss"], patience)

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

    def _steps(
        self, epoch: int, routes: Sequence[RoutedStep], after_step: Callable[[], None]
    ) -> Iterator[Record]:
        check_routes(routes)
        runner = StepRunner(self.engine, self.configuration.training, self.ranks, self.stopwatch)
        loader = Loader(self.maker, self.train, self.ranks.rank, self.stopwatch)
        batches = loader.steps([step.micro_steps for step in routes])
        for step in self._follow(routes, epoch):
            start = time.perf_counter()
            lr = self.schedule.rate(self.step, self.plateau)
            with traced(f"step {self.step}"):
                result = runner.run(step.events, next(batches), lr, self._norms_are_due())
            record = {
                "kind": "step",
                "epoch": epoch,
                "step": self.step,
                "loss": result.loss,
                "lr": lr,
                "events": len(step.events),
                "edges": result.edges,
                "micro_steps": len(step.micro_steps),
                "routes": {self.train[i].name: parts for i, parts in step.parts.items()},
                "norms": result.norms and result.norms.record(),
                "seconds": time.perf_counter() - start,
            }
            self.log(record)
            self.step += 1
            after_step()
            yield record

    def _norms_are_due(self) -> bool:
        every = self.configuration.training.norms_every
        return every > 0 and self.step % every == 0

    def _follow(self, routes: Sequence[RoutedStep], epoch: int) -> Iterator[RoutedStep]:
        if not self.ranks.is_first:
            return iter(routes)
        epochs = self.configuration.training.epochs
        return iter(follow(routes, len(routes), f"epoch {epoch + 1}/{epochs}"))
