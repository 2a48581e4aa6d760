"""The loop over epochs."""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bigtrk.console import follow
from bigtrk.parallel.engine import Engine
from bigtrk.parallel.groups import BlockGroups
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.training.batch import BatchMaker
from bigtrk.training.event_source import EventSource
from bigtrk.training.loader import Loader, Plan
from bigtrk.training.settings import Configuration
from bigtrk.training.step import StepRunner
from bigtrk.training.steps import learning_rate, step_events
from bigtrk.training.usage import usage
from bigtrk.training.validation import validate

Record = dict[str, Any]


@dataclass
class Trainer:
    """Trains epoch by epoch; every step and epoch becomes a record for `log`."""

    configuration: Configuration
    ranks: Ranks
    engine: Engine
    train: list[EventSource]
    validation: list[EventSource]
    groups: BlockGroups
    maker: BatchMaker
    stopwatch: Stopwatch
    log: Callable[[Record], None]
    step: int = 0

    def run_epoch(self, epoch: int) -> Record:
        """Train on every event once, then validate; returns the epoch's record. Collective."""
        self.stopwatch.take()
        start = time.perf_counter()
        records = list(self._steps(epoch))
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
        return record

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

    def _steps(self, epoch: int) -> Iterator[Record]:
        training = self.configuration.training
        plan = step_events(len(self.train), training.events_per_step, training.seed, epoch)
        runner = StepRunner(self.engine, training, self.ranks, self.stopwatch)
        loader = Loader(
            self.maker, self.train, self.ranks.rank, self.ranks.world_size, self.stopwatch
        )
        batches = loader.steps(plan)
        for events in self._follow(plan, epoch):
            start = time.perf_counter()
            lr = self._learning_rate()
            micro_steps = next(batches)
            result = runner.run(events, micro_steps, lr)
            record = {
                "kind": "step",
                "epoch": epoch,
                "step": self.step,
                "loss": result.loss,
                "lr": lr,
                "events": len(events),
                "edges": result.edges,
                "micro_steps": len(micro_steps),
                "seconds": time.perf_counter() - start,
            }
            self.log(record)
            self.step += 1
            yield record

    def _learning_rate(self) -> float:
        optimizer = self.configuration.optimizer
        return learning_rate(optimizer.lr, optimizer.warmup_steps, self.step)

    def _follow(self, plan: Plan, epoch: int) -> Iterator[Any]:
        if not self.ranks.is_first:
            return iter(plan)
        return follow(plan, len(plan), f"epoch {epoch + 1}/{self.configuration.training.epochs}")
