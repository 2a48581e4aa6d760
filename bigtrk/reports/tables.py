"""The report's tables, the same for terminal and page."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from bigtrk.config import parse
from bigtrk.reports import figures
from bigtrk.reports.facts import engine_name
from bigtrk.reports.layout import Table, at_width, show_table
from bigtrk.reports.norms import norms_tables
from bigtrk.reports.records import EdgeMetrics, EpochRecord, EvaluationRecord, TrackRecord
from bigtrk.reports.routes import routes_table
from bigtrk.reports.run_folder import Run, labels
from bigtrk.reports.scaling import SPEEDUP_RULE, TIMING_RULE, Scaling
from bigtrk.reports.spikes import spikes_tables

TIME_SHARES = "Where the time goes"
TIME_SHARES_NOTE = (
    "Exchange: halo rows between ranks. Reduction: gradients. Data: reading events. "
    "Imbalance: compute time of the slowest rank over the mean."
)
METRIC_COLUMNS = (
    "efficiency %",
    "target purity %",
    "total purity %",
    "purity %",
    "AUC %",
    "val. loss",
)
TRACK_COLUMNS = (
    *("matching", "mode", "efficiency %", "fake %", "duplicate %"),
    *("particles", "found", "tracks", "matched"),
)
PAPER = "Columns and precision as in the table of Lazar et al.; metrics are means over events."

Evaluated = tuple[str, EvaluationRecord]


def make_tables(runs: Sequence[Run], scaling: Scaling) -> list[Table]:
    """All tables that these runs can fill, in reading order."""
    tables = [_speed(runs, scaling), _time_shares(scaling), routes_table(runs)]
    if len(runs) > 1:
        tables.append(_last_epochs(runs))
    tables.extend(_epochs(name, run) for name, run in zip(labels(runs), runs, strict=True))
    tables += [*norms_tables(runs), *spikes_tables(runs)]
    evaluated = [
        (name, run.evaluation)
        for name, run in zip(labels(runs), runs, strict=True)
        if run.evaluation
    ]
    return tables + _evaluation_tables(evaluated)


def show_evaluation(evaluation: dict[str, Any], console: Console) -> None:
    """Print the tables of one evaluation, in the form of `evaluation.json`."""
    record = parse(EvaluationRecord, evaluation, "evaluation")
    for table in _evaluation_tables([("", record)]):
        show_table(table, at_width(console))


def _speed(runs: Sequence[Run], scaling: Scaling) -> Table:
    columns = ["run", "engine", "ranks", "events", "edges", "edges/s", "epoch s", "batch s"]
    columns += ["peak memory"]
    if scaling.compares:
        columns += ["speed-up", "par. eff. %"]
    rows = []
    for run, timing, row in zip(runs, scaling.timings, scaling.rows, strict=True):
        cells = [
            row.run,
            engine_name(run.record),
            str(row.ranks),
            figures.count(run.record.data.train_events),
            figures.count(run.record.data.edges),
            figures.rate(timing.edges_per_second),
            figures.seconds(timing.epoch_seconds),
            figures.seconds(timing.batch_seconds),
            figures.memory(timing.peak_memory_bytes),
        ]
        if scaling.compares:
            cells += [figures.decimal(row.speedup), figures.share(row.efficiency)]
        rows.append(tuple(cells))
    rules = (TIMING_RULE, SPEEDUP_RULE) if scaling.compares else (TIMING_RULE,)
    return Table("Speed", tuple(columns), tuple(rows), (*rules, *scaling.notes), text_columns=2)


def _time_shares(scaling: Scaling) -> Table:
    rows = []
    for row, timing in zip(scaling.rows, scaling.timings, strict=True):
        shares = timing.shares
        parts = (
            (shares.exchange, shares.compute, shares.reduce, shares.data) if shares else [None] * 4
        )
        cells = [figures.share(part) for part in parts]
        rows.append((row.run, str(row.ranks), *cells, figures.decimal(timing.imbalance)))
    return Table(
        TIME_SHARES,
        ("run", "ranks", "exchange %", "compute %", "reduction %", "data %", "imbalance"),
        tuple(rows),
        (TIME_SHARES_NOTE,),
    )


def _metrics(metrics: EdgeMetrics | None) -> tuple[str, ...]:
    known = metrics or EdgeMetrics()
    return (
        figures.percent(known.efficiency),
        figures.percent(known.target_purity),
        figures.percent(known.total_purity),
        figures.percent(known.purity),
        figures.percent(known.auc),
        figures.loss(known.loss),
    )


def _epoch_cells(epoch: EpochRecord) -> tuple[str, ...]:
    times = (figures.seconds(epoch.seconds), figures.seconds(epoch.batch_seconds))
    return (*_metrics(epoch.validation), *times)


def _last_epochs(runs: Sequence[Run]) -> Table:
    rows = tuple(
        (name, str(run.record.world_size), str(epoch.epoch), *_epoch_cells(epoch))
        for name, run in zip(labels(runs), runs, strict=True)
        for epoch in run.epochs[-1:]
    )
    columns = ("run", "ranks", "epoch", *METRIC_COLUMNS, "epoch s", "batch s")
    return Table("Validation after the last epoch", columns, rows, (PAPER,))


def _epochs(name: str, run: Run) -> Table:
    rows = tuple(
        (str(epoch.epoch), figures.loss(epoch.train_loss), *_epoch_cells(epoch))
        for epoch in run.epochs
    )
    columns = ("epoch", "train loss", *METRIC_COLUMNS, "epoch s", "batch s")
    note = PAPER if rows else f"No epoch has finished yet; steps recorded: {len(run.steps)}."
    return Table(f"Epochs of {name}", columns, rows, (note,), text_columns=0)


def _evaluation_tables(evaluated: Sequence[Evaluated]) -> list[Table]:
    tables = [_evaluated_edges(evaluated)] if evaluated else []
    tracked = [(name, record.tracks) for name, record in evaluated if record.tracks]
    return [*tables, _evaluated_tracks(tracked)] if tracked else tables


def _evaluated_edges(evaluated: Sequence[Evaluated]) -> Table:
    rows = tuple(
        (
            *((name,) if name else ()),
            figures.text(record.data),
            figures.count(record.events),
            figures.count(record.edges),
            *_metrics(record.edge_metrics),
        )
        for name, record in evaluated
    )
    run = _run_column(evaluated)
    columns = (*run, "data", "events", "edges", *METRIC_COLUMNS[:-1], "loss")
    seen = [
        f"{name + ': ' if name else ''}the model was trained on {record.events_trained_on} of "
        "these events, so this does not tell how it does on others."
        for name, record in evaluated
        if record.events_trained_on
    ]
    seen += [
        f"{name + ': ' if name else ''}{record.events_left_out} events that the model was trained "
        "on are left out."
        for name, record in evaluated
        if record.events_left_out
    ]
    return Table("Evaluation: edges", columns, rows, (PAPER, *seen), text_columns=1 + len(run))


def _evaluated_tracks(tracked: Sequence[tuple[str, TrackRecord]]) -> Table:
    rows = tuple(
        (
            *((name,) if name else ()),
            *(match.style, match.mode),
            *(
                figures.percent(value, 2)
                for value in (match.efficiency, match.fake_rate, match.duplicate_rate)
            ),
            *(
                figures.count(value)
                for value in (
                    *(match.n_particles, match.n_reconstructed),
                    *(match.n_tracks, match.n_matched),
                )
            ),
        )
        for name, tracks in tracked
        for match in tracks.matching
    )
    notes = tuple(_track_note(name, tracks) for name, tracks in tracked)
    run = _run_column(tracked)
    columns = (*run, *TRACK_COLUMNS)
    return Table("Evaluation: tracks", columns, rows, notes, text_columns=2 + len(run))


def _run_column(named: Sequence[tuple[str, object]]) -> tuple[str, ...]:
    return ("run",) if any(name for name, _ in named) else ()


def _track_note(name: str, tracks: TrackRecord) -> str:
    score = "unknown, since the truth does not give every hit a weight"
    if tracks.trackml_score is not None:
        score = f"{tracks.trackml_score:.4f}"
    return (
        f"{name + ': ' if name else ''}TrackML score {score}. Tracks from edges with "
        f"a score above {figures.text(tracks.score_cut)}; particles of at least "
        f"{figures.text(tracks.min_hits)} hits and {figures.text(tracks.pt_min)} GeV; matching "
        f"fraction {figures.text(tracks.matching_fraction)}."
    )
