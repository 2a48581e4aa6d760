"""The tables of evaluations, the same for terminal and page."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from bigtrk.records.evaluation import EvaluationRecord, MatchingRecord, TrackRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.binned import BINNED_RULE, cell
from bigtrk.reports.elements.layout import Table, at_width, show_table
from bigtrk.reports.elements.metric_columns import METRIC_COLUMNS, PAPER, metric_cells
from bigtrk.reports.evaluation.binned_tables import binned_tables

MATCHING_COLUMNS = (
    *("efficiency %", "fake %", "duplicate %"),
    *("particles", "found", "tracks", "matched"),
)
TRACK_COLUMNS = ("matching", "mode", *MATCHING_COLUMNS)
EDGES, TRACKS = "Evaluation: edges", "Evaluation: tracks"
LIMITS = "What limits the tracks"
SCAN_RULE = "ATLAS matching, strict mode."
NO_PARTICLES = (
    "No particle has so many hits and a known pT so high; --pt-min 0 takes those of unknown "
    "momentum, too."
)

BUDGET = ("ATLAS", "strict")
CATEGORIES = {
    "found": "found",
    "no_true_edges": "graph: no true edges",
    "too_few_true_edges": "graph: too few true edges",
    "true_edges_cut": "model: true edges cut",
    "merged": "model: merged by false edges",
}
PERFECT = "found with perfect scores"
LIMITS_RULE = (
    "ATLAS matching, strict mode; each particle is in the first row that fits. Graph: the graph "
    "holds no true edge of it; or even all its true edges alone give no track. Model: the true "
    "edges that the model keeps give no track; or they do, but false edges join it to others. "
    "Perfect scores: all true edges are kept and no other."
)

Evaluated = tuple[str, EvaluationRecord]


def named_evaluations(runs: Sequence[Run]) -> list[tuple[str, EvaluationRecord, Run]]:
    """Returns evaluations by name: the run's, with the data folder's where it has several."""
    return [
        (f"{name} on {folder}" if len(run.evaluations) > 1 else name, record, run)
        for name, run in zip(labels(runs), runs, strict=True)
        for folder, record in zip(_data_folders(run.evaluations), run.evaluations, strict=True)
    ]


def _data_folders(records: Sequence[EvaluationRecord]) -> list[str]:
    """Returns a short name of each data folder: its own, or its whole path where two share that."""
    paths = {record.data: Path(record.data).name for record in records}
    names = list(paths.values())
    return [
        paths[record.data] if names.count(paths[record.data]) == 1 else record.data
        for record in records
    ]


def show_evaluation(record: EvaluationRecord, console: Console) -> None:
    """Prints the tables of one evaluation."""
    for table in evaluation_tables([("", record)]):
        show_table(table, at_width(console))


def evaluation_tables(evaluated: Sequence[Evaluated]) -> list[Table]:
    """Makes tables of edges, tracks, their limits, and both in bins, as far as the records go."""
    tables = [_evaluated_edges(evaluated)] if evaluated else []
    tracked = [(name, record.tracks) for name, record in evaluated if record.tracks]
    if tracked:
        tables += [_evaluated_tracks(tracked), *_scans(tracked), *_limits(tracked)]
    return [
        *tables,
        *(table for name, record in evaluated for table in binned_tables(name, record)),
    ]


def _limits(tracked: Sequence[tuple[str, TrackRecord]]) -> list[Table]:
    """Makes a row per category of the loss budget, and one of what perfect scores find."""
    rows = []
    for name, tracks in tracked:
        run, total = (name,) if name else (), sum(tracks.losses.values())
        for category, what in CATEGORIES.items():
            if category in tracks.losses:
                n = tracks.losses[category]
                rows.append((*run, what, figures.count(n), cell(n, total)))
        for match in tracks.perfect.matching if tracks.perfect else ():
            if (match.style, match.mode) == BUDGET and match.n_reconstructed is not None:
                n = match.n_reconstructed
                rows.append((*run, PERFECT, figures.count(n), cell(n, match.n_particles or 0)))
    run_column = _run_column(tracked)
    columns = (*run_column, "reconstructable particles", "particles", "%")
    notes = (LIMITS_RULE, BINNED_RULE)
    table = Table(LIMITS, columns, tuple(rows), notes, 1 + len(run_column))
    return [table] if rows else []


def _evaluated_edges(evaluated: Sequence[Evaluated]) -> Table:
    folders = _data_folders([record for _, record in evaluated])
    rows = tuple(
        (
            *((name,) if name else ()),
            figures.text(folder),
            figures.count(record.events),
            figures.count(record.edges),
            *metric_cells(record.edge_metrics),
        )
        for folder, (name, record) in zip(folders, evaluated, strict=True)
    )
    run = _run_column(evaluated)
    columns = (*run, "data", "events", "edges", *METRIC_COLUMNS[:-1], "loss")
    notes = [note for name, record in evaluated for note in _notes(name, record)]
    return Table(EDGES, columns, rows, (PAPER, *notes), text_columns=1 + len(run))


def _notes(name: str, record: EvaluationRecord) -> Iterator[str]:
    """Says what must be known of an evaluation to read its figures."""
    whose = f"{name}: " if name else ""
    if record.weights is not None:
        yield f"{whose}the weights are those of {record.weights}."
    if record.step is not None:
        yield f"{whose}the weights are those of the checkpoint at step {record.step}."
    if record.events_trained_on:
        yield (
            f"{whose}the model was trained on {record.events_trained_on} of these events, so this "
            "does not tell how it does on others."
        )
    if record.events_left_out:
        yield f"{whose}{record.events_left_out} events that the model was trained on are left out."
    if record.edge_metrics.undefined:
        yield f"{whose}{record.edge_metrics.undefined}."


def _evaluated_tracks(tracked: Sequence[tuple[str, TrackRecord]]) -> Table:
    rows = tuple(
        (
            *((name,) if name else ()),
            *matching_cells(match),
        )
        for name, tracks in tracked
        for match in tracks.matching
    )
    notes = tuple(_track_note(name, tracks) for name, tracks in tracked)
    run = _run_column(tracked)
    columns = (*run, *TRACK_COLUMNS)
    return Table(TRACKS, columns, rows, notes, text_columns=2 + len(run))


def _scans(tracked: Sequence[tuple[str, TrackRecord]]) -> list[Table]:
    """Makes a row per score cut that was scanned."""
    rows = tuple(
        (*((name,) if name else ()), figures.text(match.score_cut), *_rate_cells(match))
        for name, tracks in tracked
        for match in tracks.scan
    )
    run = _run_column(tracked)
    columns = (*run, "score cut", *MATCHING_COLUMNS)
    table = Table("Tracks by score cut", columns, rows, (SCAN_RULE,), text_columns=len(run))
    return [table] if rows else []


def matching_cells(match: MatchingRecord) -> tuple[str, ...]:
    """Makes the cells of one matching, in the order of TRACK_COLUMNS."""
    return (match.style, match.mode, *_rate_cells(match))


def _rate_cells(match: MatchingRecord) -> tuple[str, ...]:
    rates = (match.efficiency, match.fake_rate, match.duplicate_rate)
    counts = (match.n_particles, match.n_reconstructed, match.n_tracks, match.n_matched)
    return (*(figures.percent(rate, 2) for rate in rates), *map(figures.count, counts))


def score_note(score: float | None) -> str:
    """Says what the TrackML score is."""
    if score is None:
        return (
            "TrackML score unknown, since the truth does not give every hit a weight, or 0 to all."
        )
    return f"TrackML score {score:.4f}."


def _run_column(named: Sequence[tuple[str, object]]) -> tuple[str, ...]:
    return ("run",) if any(name for name, _ in named) else ()


def _track_note(name: str, tracks: TrackRecord) -> str:
    return (
        f"{name + ': ' if name else ''}{score_note(tracks.trackml_score)} Tracks by "
        f"{tracks.builder} from edges with a score above {figures.text(tracks.score_cut)}; "
        f"particles of at least "
        f"{figures.text(tracks.min_hits)} hits and {figures.text(tracks.pt_min)} GeV; matching "
        f"fraction {figures.text(tracks.matching_fraction)}."
    )
