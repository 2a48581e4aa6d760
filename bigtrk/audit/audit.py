"""`bigtrk audit`: how far the gradients that a run could train on are from the exact one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bigtrk.audit.draws import draw_events, draw_mini_batches, exact_gradients
from bigtrk.audit.gradients import parts_of
from bigtrk.audit.names import Way
from bigtrk.audit.points import Point, read_training
from bigtrk.audit.same_gradient import same_gradients
from bigtrk.audit.subject import DRAWN, HeldSource, Subject
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError, printable
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import make_world
from bigtrk.records.audit import AuditedWeights, AuditRecord
from bigtrk.records.record import write_record
from bigtrk.training.data.event_source import EventSource, open_events
from bigtrk.training.evaluation.evaluated_model import evaluated_configuration
from bigtrk.training.settings import Configuration

AUDIT = "audit.json"


@dataclass(frozen=True)
class AuditOptions:
    """The `ways` to audit, all that the data allow without any; the number of `draws` of each way
    that draws, and of events, the first of the data by name; the seed of the draws; whether only
    the newest weights are audited.
    """

    ways: tuple[Way, ...] = ()
    draws: int = 32
    events: int = 16
    seed: int = 0
    newest: bool = False


def audit_run(run: Path, data: Path, options: AuditOptions, ranks: Ranks) -> AuditRecord:
    """Audits the gradients of a run at the weights that it still has, on the events of `data`;
    writes audit.json in its folder.

    Raises:
        InputError: the run has no weights, embeds hits or chooses the edges that it trains; the
            data cannot be read, lack a feature or truth, or are not in sectors where sectors are
            asked for; a loss is not finite; or the disk refuses.
    """
    _check_trained(run, evaluated_configuration(run))
    training = read_training(run, options.newest)
    sources = _events(data, training.configuration, options)
    subject = Subject(training.configuration, training.measured, make_world(ranks), sources)
    ways = options.ways or subject.ways
    prepared = subject.one_at_a_time(options.seed)
    record = AuditRecord(
        data=printable(str(data.resolve())),
        made=datetime.now(UTC),
        events=len(sources),
        draws=options.draws,
        seed=options.seed,
        points=tuple(_audited(point, ways, prepared, options.draws) for point in training.points),
    )
    with disk_errors():
        write_record(run / AUDIT, record)
    return record


def _audited(point: Point, ways: Sequence[Way], subject: Subject, draws: int) -> AuditedWeights:
    model = subject.model(point.weights)
    exact = exact_gradients(subject, model, parts_of(model), point.name)
    events = [draw_events(exact)] if Way.EVENTS in ways else []
    drawn = [
        draw_mini_batches(way, subject, model, exact, draws, point.name)
        for way in DRAWN
        if way in ways
    ]
    return AuditedWeights(
        weights=point.name,
        step=point.step,
        loss=exact.loss,
        norm=float(exact.mean.norm()),
        drawn=(*events, *drawn),
        same=same_gradients(ways, subject, model, exact, point.name),
    )


def _check_trained(run: Path, configuration: Configuration) -> None:
    """Refuses a run whose step has no exact gradient of edges."""
    if configuration.model.kind == "hit":
        raise InputError(
            f"{run}: its model embeds hits, and a step draws the pairs that it trains, so that no "
            f"gradient is the exact one; name the run of an edge model"
        )
    if configuration.negatives.are_chosen:
        raise InputError(
            f"{run}: a step chooses the false edges that it trains (negatives), so that no "
            f"gradient is the exact one; name a run without negatives.hard and negatives.easy"
        )


def _events(data: Path, configuration: Configuration, options: AuditOptions) -> list[EventSource]:
    """Opens the first events of `data`, and checks that they have what the run's model reads."""
    with_pt = configuration.training.pt_weight > 0
    found = open_events([data])[: options.events]
    for source in found:
        source.check(configuration.data.node_features, configuration.data.edge_features, with_pt)
    asked = [way for way in options.ways if way.needs_sectors]
    if asked and all(source.parts == 1 for source in found):
        raise InputError(
            f"{data}: holds whole graphs, and --way {asked[0]} needs their sectors; cut them with "
            f"python -m partition {data} SECTORS --parts 8, and name SECTORS"
        )
    return [HeldSource(source.name, source.parts, source.folder) for source in found]
