"""The tables of tracks that were judged from files, in the columns of an evaluation's."""

from collections.abc import Iterator

from rich.console import Console

from bigtrk.records.score import EventScore, ScoreRecord
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.layout import Table, at_width, show_table
from bigtrk.reports.evaluation.tables import (
    NO_PARTICLES,
    TRACK_COLUMNS,
    matching_cells,
    score_note,
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
    return [overall] if n_events == 1 else [overall, _by_event(record)]


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
    if record.events_without_tracks:
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
