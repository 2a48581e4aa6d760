"""A training run from its configuration to the trained model on disk."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from bigtrk.console import say
from bigtrk.parallel.collectives import on_first_rank
from bigtrk.parallel.engines import make_engine
from bigtrk.parallel.groups import BlockGroups
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import usable_parts
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.training.batch import BatchMaker
from bigtrk.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from bigtrk.training.event_source import EventSource
from bigtrk.training.model_files import build_model, describe
from bigtrk.training.run_folder import append_record, continue_records, create_run, save_model
from bigtrk.training.settings import Configuration
from bigtrk.training.trainer import Record, Trainer


@dataclass(frozen=True)
class Events:
    """The events of a run."""

    train: list[EventSource]
    validation: list[EventSource]

    @property
    def fingerprint(self) -> str:
        """The number of events and a digest of their names, contents and cuts."""
        events = [*self.train, *self.validation]
        facts = repr([(event.name, event.identity, event.parts) for event in events])
        return f"{len(events)} events of digest {hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    def parts(self, world_size: int) -> list[int]:
        """Number of ranks each training event is laid over."""
        return [usable_parts(source.parts, world_size) for source in self.train]


def fit(configuration: Configuration, ranks: Ranks, events: Events, resume: Path | None) -> Path:
    """Train, resuming the run at `resume` if given; returns the run folder. Collective."""
    stopwatch = Stopwatch(ranks.device)
    model = build_model(configuration).to(ranks.device)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    engine, engine_name = make_engine(
        configuration.engine, model, configuration.optimizer, stopwatch
    )
    facts = _facts(configuration, ranks, events, engine_name, n_parameters)
    folder = resume or on_first_rank(lambda: create_run(configuration.run.folder, facts))
    _announce(ranks, folder, facts)

    validated = [usable_parts(source.parts, ranks.world_size) for source in events.validation]
    groups = BlockGroups(ranks, [*events.parts(ranks.world_size), *validated])
    trainer = Trainer(
        configuration=configuration,
        ranks=ranks,
        engine=engine,
        train=events.train,
        validation=events.validation,
        groups=groups,
        maker=BatchMaker(configuration, ranks.device, groups, stopwatch),
        stopwatch=stopwatch,
        log=_logger(ranks, folder),
    )
    done = 0
    if resume:
        on_first_rank(lambda: continue_records(folder))
        progress = load_checkpoint(engine, folder, engine_name)
        done, trainer.step = progress.epoch, progress.step
    for epoch in range(done, configuration.training.epochs):
        _print_epoch(ranks, trainer.run_epoch(epoch), configuration.training.epochs)
        progress = Progress(epoch + 1, trainer.step, engine_name, ranks.world_size)
        save_checkpoint(engine, folder, progress)
    weights = engine.weights()
    if ranks.is_first:
        save_model(folder, weights, describe(configuration, [e.identity for e in events.train]))
        say(f"model and record in {folder}")
    dist.barrier()
    return folder


def _facts(
    configuration: Configuration,
    ranks: Ranks,
    events: Events,
    engine_name: str,
    n_parameters: int,
) -> dict[str, Any]:
    parts = events.parts(ranks.world_size)
    return {
        "launcher": ranks.launcher,
        "world_size": ranks.world_size,
        "engine": configuration.engine.name,
        "engine_detail": engine_name,
        "parameters": n_parameters,
        "config": configuration.model_dump(mode="json"),
        "data": {
            "train_events": len(events.train),
            "validation_events": len(events.validation),
            "routes": {str(k): parts.count(k) for k in sorted(set(parts))},
            "nodes": sum(source.record["nodes"] for source in events.train),
            "edges": sum(source.record["edges"] for source in events.train),
        },
    }


def _logger(ranks: Ranks, folder: Path) -> Callable[[Record], None]:
    if ranks.is_first:
        return lambda record: append_record(folder, record)
    return lambda _: None


def _announce(ranks: Ranks, folder: Path, facts: dict[str, Any]) -> None:
    if not ranks.is_first:
        return
    data = facts["data"]
    routes = ", ".join(f"{n} in {k} sectors" for k, n in data["routes"].items() if k != "1")
    say(
        f"{folder}: {facts['parameters']:,} parameters, {facts['engine_detail']} on "
        f"{ranks.world_size} rank(s) of {ranks.device}; {data['train_events']} events, "
        f"{data['edges']:,} edges to train on{f' ({routes})' if routes else ''}, "
        f"{data['validation_events']} to validate"
    )


def _print_epoch(ranks: Ranks, record: Record, epochs: int) -> None:
    if not ranks.is_first:
        return
    scores = dict(record["validation"] or {})
    # Events without target or predicted edges are missing from some means: said when there are any.
    skipped = scores.pop("events_skipped", 0)
    shown = "  ".join(f"{k} {v:.4f}" for k, v in scores.items() if v is not None)
    shown += f"  ({skipped:.0f} events lack a metric)" if skipped else ""
    say(
        f"epoch {record['epoch'] + 1}/{epochs}  train loss {record['train_loss']:.5f}  "
        f"validation: {shown or '-'}  {record['seconds']:.1f} s  "
        f"{record['edges_per_second']:,.0f} edges/s  "
        f"peak {record['peak_memory_bytes'] / 2**30:.2f} GiB"
    )
