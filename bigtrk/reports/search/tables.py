"""The tables of a search: its trials, and the rounds of a population."""

from bigtrk.errors import one_line
from bigtrk.records.search import SearchFolder, Trial, best_first, trial_name
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.layout import Table
from bigtrk.reports.search.axes import setting_text
from bigtrk.reports.search.lineage import ancestry
from bigtrk.reports.search.metric import Metric, state

MOST_ROWS, MOST_REASONS = 500, 10
VALUE_NOTE = (
    "The value is that of a trial's best epoch; of a pruned one that of its last; of one that has "
    "not ended that of the best so far."
)
ROUND_NOTE = "The value is that after a trial's last round."


def ranked(search: SearchFolder) -> list[Trial]:
    """Lists the trials that tables show: the best first, those that have not ended last."""
    records = best_first([trial.record for trial in search.trials], search.record.minimises)
    by_number = {trial.record.number: trial for trial in search.trials}
    return [by_number[record.number] for record in records[:MOST_ROWS]]


def trials_table(search: SearchFolder, metric: Metric) -> Table:
    """Makes the table of the trials; its notes say why some failed."""
    found = ranked(search)
    rows = tuple(
        (
            trial.folder.name,
            state(trial),
            metric.text(metric.value(trial)),
            figures.count(len(trial.epochs)),
            figures.seconds(_seconds(trial)),
            *(_cell(trial, key) for key in search.record.space),
        )
        for trial in found
    )
    columns = ("trial", "state", metric.title, "epochs", "s", *search.record.space)
    left = len(search.trials) - len(found)
    failed = [trial for trial in search.trials if trial.record.state == "failed"]
    notes = [
        ROUND_NOTE if search.record.population else VALUE_NOTE,
        *([f"{left} more trials are in result.json."] if left else []),
        *(f"{one.folder.name} failed: {_reason(one)}" for one in failed[:MOST_REASONS]),
    ]
    return Table("Trials", columns, rows, tuple(notes), text_columns=2)


def ancestry_table(search: SearchFolder, metric: Metric, best: Trial) -> Table:
    """Makes the table of the rounds in which the weights of a population's best trial trained: a
    schedule of its settings.
    """
    rounds = {(one.round, one.trial): one for one in search.rounds}
    rows = tuple(
        (
            trial_name(one.trial),
            str(one.round + 1),
            str(one.epochs),
            metric.text(one.value),
            *(setting_text(one.settings.get(key, "")) for key in search.record.space),
        )
        for one in ancestry(rounds, best.record.number)[-MOST_ROWS:]
    )
    columns = ("trial", "round", "epochs", metric.title, *search.record.space)
    return Table(f"How {best.folder.name} came about", columns, rows)


def search_tables(search: SearchFolder, metric: Metric, best: Trial | None) -> list[Table]:
    """Makes all tables, that of the trials first."""
    tables = [trials_table(search, metric)]
    if search.record.population and best:
        tables.append(ancestry_table(search, metric, best))
    return tables


def _seconds(trial: Trial) -> float | None:
    return sum(epoch.seconds for epoch in trial.epochs) if trial.epochs else None


def _cell(trial: Trial, key: str) -> str:
    known = trial.record.settings
    return setting_text(known[key]) if key in known else figures.DASH


def _reason(trial: Trial) -> str:
    return one_line(trial.record.reason) or "for a reason that was not recorded"
