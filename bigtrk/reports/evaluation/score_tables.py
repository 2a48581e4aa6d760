"""The tables of tracks that were judged from files, in the columns of an evaluation's."""

from collections.abc import Iterator

from rich.console import Console

from bigtrk.records.score import ColliderMLMetrics, ColliderMLScore, EventScore, ScoreRecord
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.layout import Table, at_width, show_table
from bigtrk.reports.evaluation.tables import (
    NO_PARTICLES,
    TRACK_COLUMNS,
    matching_cells,
    score_note,
)

COLLIDERML_COLUMNS = ("rows", "trackml_eff", "fake_rate", "dup_rate", "physics_eff_pt1")
COLLIDERML_RULES = (
    "As ColliderML's package defines them: trackml_eff is over the weight of the hits submitted, "
    "not of all; track -1 is a track like any other; physics_eff_pt1 takes the submission's word "
    "(majority_particle_id) for what was found. Strict figures are below."
)
LONGEST_TABLE = 10  # events, of six rows each; --json has them all
RULES = (
    "strict: noise never matches. acorn: noise matches like a particle, as in GNN4ITk's tool. "
    "efficiency: found among particles. fake: tracks that match no particle. duplicate: tracks "
    "beyond the first of a particle found, per such particle."
)


def show_score(record: ScoreRecord, console: Console) -> None:
    """Prints the tables of all events together and, where there are several, of each."""
    for table in score_tables(record):
        show_table(table, at_width(console))


def score_tables(record: ScoreRecord) -> list[Table]:
    """Makes the table of all events and, where there are several, one of the first events."""
    n_events, n_hits = len(record.events), sum(event.hits for event in record.events)
    whose = record.events[0].event if n_events == 1 else f"{n_events} events"
    title = f"Tracks of {whose}, {figures.count(n_hits)} hits"
    rows = tuple(map(matching_cells, record.matching))
    overall = Table(title, TRACK_COLUMNS, rows, (*_notes(record), RULES), text_columns=2)
    public = [_colliderml(record.colliderml)] if record.colliderml else []
    return [*public, overall] if n_events == 1 else [*public, overall, _by_event(record)]


def _colliderml(score: ColliderMLScore) -> Table:
    """Makes the table of the public metrics."""
    rows = (
        ("as submitted", *_metric_cells(score.submitted)),
        ("without those of track -1", *_metric_cells(score.in_tracks)),
    )
    title = "ColliderML's tracking task, its own metrics"
    return Table(title, COLLIDERML_COLUMNS, rows, (COLLIDERML_RULES,))


def _metric_cells(metrics: ColliderMLMetrics) -> tuple[str, ...]:
    return tuple(f"{getattr(metrics, name):.4f}" for name in COLLIDERML_COLUMNS[1:])


def _notes(record: ScoreRecord) -> Iterator[str]:
    yield (
        f"{score_note(record.trackml_score)} Tracks and particles of at least {record.min_hits} "
        f"hits, particles of at least {record.pt_min} GeV; matching fraction "
        f"{record.matching_fraction}."
    )
    known = sum(event.trackml_score is not None for event in record.events)
    if 0 < known < len(record.events):
        yield (
            f"The TrackML score is the mean over {known} of {len(record.events)} events; the truth "
            "of the others gives no weights."
        )
    if not any(match.n_particles for match in record.matching):
        yield NO_PARTICLES
    if record.events_without_tracks and record.colliderml:
        yield (
            f"{record.events_without_tracks} of the events are not in the submission, and judged "
            "as events without a track."
        )
    elif record.events_without_tracks:
        yield (
            f"Not judged, since no tracks are given: {record.events_without_tracks} more of the "
            "events."
        )


def _by_event(record: ScoreRecord) -> Table:
    shown = record.events[:LONGEST_TABLE]
    rows = tuple(row for event in shown for row in _rows(event))
    hidden = len(record.events) - len(shown)
    notes = (f"{hidden} more events: --json tells of all.",) if hidden else ()
    columns = ("event", "TrackML", *TRACK_COLUMNS[:-2])
    return Table("Tracks by event", columns, rows, notes, text_columns=4)


def _rows(event: EventScore) -> Iterator[tuple[str, ...]]:
    """Makes a row per matching; the first one names the event."""
    score = figures.DASH if event.trackml_score is None else f"{event.trackml_score:.4f}"
    named = (event.event, score)
    for match in event.matching:
        yield (*named, *matching_cells(match)[:-2])
        named = ("", "")
