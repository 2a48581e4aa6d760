"""The report's tables, the same for terminal and page."""

from collections.abc import Sequence

from bigtrk.records.metrics import EpochRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.layout import Table
from bigtrk.reports.elements.metric_columns import METRIC_COLUMNS, PAPER, metric_cells
from bigtrk.reports.embedding import embedding_tables
from bigtrk.reports.evaluation.tables import evaluation_tables, named_evaluations
from bigtrk.reports.facts import engine_name
from bigtrk.reports.norms import norms_tables
from bigtrk.reports.roofline import COLUMNS, ROOFLINE_RULE, achieved_cells
from bigtrk.reports.routed_events import routes_table
from bigtrk.reports.scaling import SPEEDUP_RULE, TIMING_RULE, Scaling
from bigtrk.reports.spikes import spikes_tables

SPEED, TIME_SHARES = "Speed", "Where the time goes"
TIME_SHARES_NOTE = (
    "Exchange: halo rows between ranks. Reduction: gradients. Data: reading events. "
    "Imbalance: compute time of the slowest rank over the mean."
)


def make_tables(runs: Sequence[Run], scaling: Scaling) -> list[Table]:
    """Makes all tables that these runs can fill, in reading order."""
    tables = [_speed(runs, scaling), _time_shares(scaling), routes_table(runs)]
    if len(runs) > 1:
        tables.append(_last_epochs(runs))
    tables.extend(_epochs(name, run) for name, run in zip(labels(runs), runs, strict=True))
    for name, run in zip(labels(runs), runs, strict=True):
        tables += _averages(name, run)
    tables += embedding_tables(runs)
    tables += [*norms_tables(runs), *spikes_tables(runs)]
    return tables + evaluation_tables([found[:2] for found in named_evaluations(runs)])


def _speed(runs: Sequence[Run], scaling: Scaling) -> Table:
    columns = ["run", "engine", "ranks", "events", "edges", "edges/s", "epoch s", "batch s"]
    columns += ["peak memory"]
    if scaling.compares:
        columns += ["speed-up", "par. eff. %"]
    on_gpus = achieved_cells(runs, scaling)
    columns += COLUMNS if on_gpus else ()
    rows = []
    for i, (run, timing, row) in enumerate(zip(runs, scaling.timings, scaling.rows, strict=True)):
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
        rows.append((*cells, *(on_gpus[i] if on_gpus else ())))
    rules = [TIMING_RULE, *([SPEEDUP_RULE] if scaling.compares else [])]
    rules += [ROOFLINE_RULE] if on_gpus else []
    return Table(SPEED, tuple(columns), tuple(rows), (*rules, *scaling.notes), text_columns=2)


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


def _epoch_cells(epoch: EpochRecord) -> tuple[str, ...]:
    times = (figures.seconds(epoch.seconds), figures.seconds(epoch.batch_seconds))
    return (*metric_cells(epoch.validation), *times)


def _last_epochs(runs: Sequence[Run]) -> Table:
    rows = tuple(
        (name, str(run.record.world_size), str(epoch.number), *_epoch_cells(epoch))
        for name, run in zip(labels(runs), runs, strict=True)
        for epoch in run.epochs[-1:]
    )
    columns = ("run", "ranks", "epoch", *METRIC_COLUMNS, "epoch s", "batch s")
    return Table("Validation after the last epoch", columns, rows, (PAPER,))


def _averages(name: str, run: Run) -> list[Table]:
    """Makes the table of a run's averaged weights, if it keeps any."""
    found = [(epoch.number, epoch.average) for epoch in run.epochs if epoch.average]
    rows = tuple(
        (str(number), *metric_cells(average.validation))
        for number, average in found
        if average.validation
    )
    if not rows:
        return []
    columns = ("epoch", *METRIC_COLUMNS)
    return [Table(f"Averaged weights of {name}", columns, rows, (PAPER,), text_columns=0)]


def _epochs(name: str, run: Run) -> Table:
    rows = tuple(
        (str(epoch.number), figures.loss(epoch.train_loss), *_epoch_cells(epoch))
        for epoch in run.epochs
    )
    columns = ("epoch", "train loss", *METRIC_COLUMNS, "epoch s", "batch s")
    note = PAPER if rows else f"No epoch has finished yet; steps recorded: {len(run.steps)}."
    lacking = [
        f"Epoch {epoch.number}: {epoch.validation.undefined}."
        for epoch in run.epochs[-1:]
        if epoch.validation and epoch.validation.undefined
    ]
    return Table(f"Epochs of {name}", columns, rows, (note, *lacking), text_columns=0)
