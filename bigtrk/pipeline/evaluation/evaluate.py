"""`bigtrk evaluate PIPELINE EVENTS`: where a pipeline loses the particles of events with truth."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bigtrk.console import complain, follow
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError, printable
from bigtrk.events.event import Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.graphs.storage.graph_folder import event_digest
from bigtrk.pipeline.evaluation.event_losses import EventLosses, event_losses
from bigtrk.pipeline.evaluation.summary import (
    loss_bins_record,
    loss_counts,
    stages_left,
    tracks_record,
)
from bigtrk.pipeline.stages import CLASSIFIER, EMBEDDING, FILTER, load_pipeline
from bigtrk.records.evaluation import PipelineEvaluationRecord, write_evaluation
from bigtrk.records.pipeline import PIPELINE, PipelineRecord
from bigtrk.records.record import read_record
from bigtrk.tracks.matching import Criteria
from bigtrk.training.evaluation.tracks import edge_scores_record
from bigtrk.training.model_files import load_model, model_configuration

MOST_NOTES = 20


def evaluate_pipeline(folder: Path, events: Path, criteria: Criteria) -> PipelineEvaluationRecord:
    """Sends the events of `events` through the pipeline in `folder` and records what each stage
    leaves and loses; also writes a file in `folder`/evaluations.

    Events that a stage was trained on are left out, unless no others are there.

    Raises:
        InputError: the pipeline or an event cannot be read, an event has no truth, or the disk
            refuses.
    """
    pipeline = load_pipeline(folder)
    edge_cut = model_configuration(folder / CLASSIFIER).training.edge_cut
    names, trained_on, left_out = _unseen(folder, events)
    found: dict[str, EventLosses] = {}
    for name in follow(names, len(names), "evaluate"):
        event = _read_with_truth(folder, events, name)
        found[name] = event_losses(pipeline, event, criteria, edge_cut)
    losses = [*found.values()]
    record = PipelineEvaluationRecord(
        data=printable(str(events.resolve())),
        made=datetime.now(UTC),
        weights=read_record(PipelineRecord, folder / PIPELINE).weights,
        events=len(names),
        events_trained_on=trained_on,
        events_left_out=left_out,
        hits=sum(event.hits for event in losses),
        min_hits=criteria.min_hits,
        pt_min=criteria.pt_min,
        matching_fraction=criteria.matching_fraction,
        edge_cut=edge_cut,
        stages=stages_left(losses),
        scores=edge_scores_record(np.sum([event.scores for event in losses], axis=0)),
        tracks=tracks_record(losses, criteria.matchings()),
        losses=loss_counts(losses),
        loss_bins=loss_bins_record(losses),
        notes=_notes(found),
    )
    with disk_errors():
        path = write_evaluation(folder, record)
    complain(f"evaluation in {path}")
    return record


def _notes(found: dict[str, EventLosses]) -> tuple[str, ...]:
    """Returns the first notes of events' ways; all are printed."""
    notes = [f"{name}: {note}" for name, event in found.items() for note in event.passage.notes]
    for note in notes:
        complain(note)
    return tuple(notes[:MOST_NOTES])


def _unseen(folder: Path, events: Path) -> tuple[list[str], int, int]:
    """Returns the names of the events to evaluate, how many of these a stage was trained on, and
    how many others were and are left out. Events without truth are told before any is evaluated.
    """
    trained = frozenset[str]().union(
        *(load_model(folder / stage).trained_on for stage in (EMBEDDING, FILTER, CLASSIFIER))
    )
    names = find_events(events)
    seen = {
        name
        for name in follow(names, len(names), "reading events")
        if event_digest(_read_with_truth(folder, events, name)) in trained
    }
    if len(seen) == len(names):
        return names, len(names), 0
    return [name for name in names if name not in seen], 0, len(seen)


def _read_with_truth(folder: Path, events: Path, name: str) -> Event:
    event = read_event(events, name)
    if event.truth is None:
        raise InputError(
            f"{events}: {name} has no truth, by which losses could be told; add {name}-truth.csv, "
            f"or particle_id to ColliderML's hits, or make its tracks by "
            f"'bigtrk reconstruct {folder} {events} OUT'"
        )
    return event
