"""The report of a search, finished or not: the best trial, the commands that use it, all trials.

Plots of trials and settings are those of optuna-dashboard.
"""

import json
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bigtrk.config import override
from bigtrk.errors import one_line
from bigtrk.records.metrics import EpochRecord, metric_of
from bigtrk.records.run import BEST_WEIGHTS
from bigtrk.records.run_folder import Run
from bigtrk.records.search import SearchFolder, SearchRecord, Trial, best_first
from bigtrk.reports import figures
from bigtrk.reports.document import Command, Curve, Document, Facts, Number, Plot, Plots, Table
from bigtrk.reports.facts import facts as run_facts
from bigtrk.reports.metrics import METRICS

# Title and scale by name, as other pages have them.
TITLES = {
    **{name: (title, scale) for title, name, scale in METRICS},
    "train_loss": ("Training loss", 1.0),
    "log_pt_error": ("Error of log pT", 1.0),
}
# The states of trials that have not ended say whether somebody trains them now.
STATES = ("complete", "training", "waiting", "pruned", "failed")
MOST_ROWS, MOST_REASONS = 500, 10
AT_THE_END = 0.02  # of the range of a setting
VALUE_NOTE = (
    "The value is that of a trial's best epoch; of a pruned one that of its last; of one that has "
    "not ended that of the best so far."
)
ROUND_NOTE = "The value is that after a trial's last round."


@dataclass(frozen=True)
class Metric:
    """The metric of a search; values are shown times `scale`."""

    name: str
    minimises: bool

    @property
    def title(self) -> str:
        return TITLES[self.name][0] if self.name in TITLES else self.name

    @property
    def scale(self) -> float:
        return TITLES[self.name][1] if self.name in TITLES else 1.0

    def text(self, value: float | None) -> str:
        """Formats a value; a dash where it is not known."""
        return figures.DASH if value is None else f"{self.scale * value:.5g}"

    def by_epoch(self, trial: Trial) -> list[tuple[EpochRecord, float]]:
        """Lists the epochs of a trial that record the metric, with its value."""
        if self.name not in TITLES:
            return []
        known = [(epoch, metric_of(self.name, epoch)) for epoch in trial.epochs]
        return [(epoch, x) for epoch, x in known if x is not None and math.isfinite(x)]

    def value(self, trial: Trial) -> float | None:
        """Returns the value of a trial; of one that has none yet, that of its best epoch so far."""
        if trial.record.value is not None:
            return trial.record.value
        values = [x for _, x in self.by_epoch(trial)]
        return (min if self.minimises else max)(values, default=None)


def search_report(search: SearchFolder) -> Document:
    """Makes the report of a search."""
    record, name = search.record, search.folder.resolve().name
    metric = Metric(record.metric, record.minimises)
    best = best_trial(search, metric)
    number = len(search.trials)
    trials = f"{figures.count(number)} trial{'' if number == 1 else 's'}"
    return Document(
        title=f"bigtrk search: {name}",
        lead=f"Search {name}: {trials}, {_method(record)}. {_progress(search)}.",
        numbers=[(name, _numbers(search, metric, best))],
        verdict=_verdict(search, metric, best) if best else [],
        parts=[
            *_commands(search, best),
            Plots("Trials", [_plot(search, metric)]),
            _trials(search, metric),
            _facts(search),
        ],
    )


def summarise_search(search: SearchFolder) -> dict[str, Any]:
    """Returns what was searched, the best trial and all trials, JSON-able."""
    metric = Metric(search.record.metric, search.record.minimises)
    best = best_trial(search, metric)
    return {
        "folder": str(search.folder),
        **search.record.model_dump(mode="json"),
        "best": best and best.record.number,
        "trials": [
            {
                **trial.record.model_dump(mode="json"),
                "folder": str(trial.folder),
                "state": state(trial),
                "value": metric.value(trial),
                "curve": [[epoch.number, value] for epoch, value in metric.by_epoch(trial)],
            }
            for trial in search.trials
        ],
        "rounds": [one.model_dump(mode="json") for one in search.rounds],
    }


def state(trial: Trial) -> str:
    """Returns one of STATES."""
    if trial.record.state != "running":
        return trial.record.state
    return "training" if trial.is_training else "waiting"


def best_trial(search: SearchFolder, metric: Metric) -> Trial | None:
    """Returns the best trial that has trained to its end, the first of equals; before there is one,
    the best so far.
    """
    known = [trial for trial in search.trials if metric.value(trial) is not None]
    found = [trial for trial in known if trial.record.state == "complete"] or known
    sign = 1 if metric.minimises else -1
    return min(found, key=lambda one: sign * (metric.value(one) or 0.0), default=None)


def _progress(search: SearchFolder) -> str:
    """Counts the trials by what became of them."""
    found = [state(trial) for trial in search.trials]
    told = [f"{found.count(name)} {name}" for name in STATES if name in found]
    return ", ".join(told) or "No trial has begun yet"


def _numbers(search: SearchFolder, metric: Metric, best: Trial | None) -> list[Number]:
    """Lists the best value, and what it took."""
    seconds = sum(epoch.seconds for trial in search.trials for epoch in trial.epochs)
    epochs = sum(len(trial.epochs) for trial in search.trials)
    numbers = [
        Number("trials", figures.count(len(search.trials)), _progress(search)),
        Number("training, s", figures.seconds(seconds), f"{figures.count(epochs)} epochs"),
    ]
    if best is None:
        return numbers
    label = f"{metric.title}, best{'' if best.record.state == 'complete' else ' so far'}"
    return [Number(label, metric.text(metric.value(best)), best.folder.name), *numbers]


def _verdict(search: SearchFolder, metric: Metric, best: Trial) -> list[str]:
    """Says with which settings the best trial trained, and which of them lie at an end of their
    bounds.
    """
    settings = best.record.settings
    told = ", ".join(f"{key} {setting_text(value)}" for key, value in settings.items())
    so_far = "Best" if best.record.state == "complete" else "Best so far, not trained to its end"
    value = f"{metric.title} {metric.text(metric.value(best))}"
    verdict = [f"{so_far}: {best.folder.name}, {value}, with {told}."]
    space = search.record.space.items()
    if ends := [key for key, bounds in space if _is_at_end(bounds, settings.get(key))]:
        verdict.append(f"At an end of the bounds: {', '.join(ends)}; better values may lie beyond.")
    return verdict


def _is_at_end(bounds: Any, value: Any) -> bool:
    """Whether a number lies within 2 % of its range from an end of it."""
    known = bounds if isinstance(bounds, dict) else {}
    numbers = [known.get("low"), value, known.get("high")]
    if not all(isinstance(x, int | float) and abs(x) < 1e40 for x in numbers):
        return False
    if known.get("log") is True:
        if min(numbers) <= 0:
            return False
        numbers = [math.log(x) for x in numbers]
    low, at, high = numbers
    return low < high and not AT_THE_END < (at - low) / (high - low) < 1 - AT_THE_END


def _commands(search: SearchFolder, best: Trial | None) -> Iterator[Command]:
    """Says what can be done with the best trial, once it has trained to its end, and what shows
    plots of the study; a population has none.
    """
    if best is not None and best.record.state == "complete":
        weights = best.folder / BEST_WEIGHTS
        model = shlex.quote(str(weights if weights.exists() else best.folder))
        own = [override(key, value) for key, value in best.record.settings.items()]
        training = shlex.join([*search.record.given, *own])
        yield Command("To evaluate the best weights:", f"bigtrk evaluate {model} GRAPHS")
        yield Command("To train with its settings:", f"bigtrk train {training}")
    if not search.record.population:
        shown = shlex.quote(f"sqlite:///{search.folder / 'study.db'}")
        yield Command("For plots, in a browser:", f"optuna-dashboard {shown}")


def _plot(search: SearchFolder, metric: Metric) -> Plot:
    """Makes the plot of the trials' values, by state."""
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in STATES}
    for trial in search.trials:
        if (value := metric.value(trial)) is not None:
            points[state(trial)].append((trial.record.number, metric.scale * value))
    dots = [Curve(name, found, i, "dots") for i, (name, found) in enumerate(points.items())]
    return Plot(f"{metric.title} by trial", ("trial",), dots, whole=True)


def _trials(search: SearchFolder, metric: Metric) -> Table:
    """Makes the table of the trials, the best first; its notes say why some failed."""
    record, by_number = search.record, {trial.record.number: trial for trial in search.trials}
    ranked = best_first([trial.record for trial in search.trials], record.minimises)
    found = [by_number[one.number] for one in ranked[:MOST_ROWS]]
    rows = tuple(
        (
            trial.folder.name,
            state(trial),
            metric.text(metric.value(trial)),
            figures.count(len(trial.epochs)),
            figures.seconds(sum(epoch.seconds for epoch in trial.epochs) or None),
            *(setting_text(trial.record.settings.get(key, figures.DASH)) for key in record.space),
        )
        for trial in found
    )
    left = len(ranked) - len(found)
    failed = [trial for trial in search.trials if trial.record.state == "failed"]
    unknown = "for a reason that was not recorded"
    reasons = [(one.folder.name, one_line(one.record.reason) or unknown) for one in failed]
    notes = (
        ROUND_NOTE if record.population else VALUE_NOTE,
        *([f"{left} more trials are in result.json."] if left else []),
        *(f"{name} failed: {why}" for name, why in reasons[:MOST_REASONS]),
    )
    columns = ("trial", "state", metric.title, "epochs", "s", *record.space)
    return Table("Trials", columns, rows, notes, text_columns=2)


def _facts(search: SearchFolder) -> Facts:
    """Says what was searched, how, and what the first run that has begun trains on."""
    record = search.record
    model = record.configuration.get("model")
    own = model if isinstance(model, dict) else {}
    of_all = {key: value for key, value in own.items() if f"model.{key}" not in record.space}
    facts = {
        "searched": figures.settings(record.space),
        "for": f"{record.metric}, the {'smaller' if record.minimises else 'larger'} the better",
        "method": _method(record),
        "trials": _progress(search),
        "model": figures.settings(of_all),
    }
    if begun := next((trial for trial in search.trials if trial.run), None):
        assert begun.run, "chosen so"
        known = run_facts(Run(begun.folder, begun.run, (), begun.epochs))
        labels = ("target", "trained on", "validated on", "engine", "machine", "software")
        facts |= {label: known[label] for label in labels}
    return Facts(f"Search {search.folder.resolve().name}", facts)


def _method(record: SearchRecord) -> str:
    """Says how the settings of trials come about, and which trials are ended early."""
    if record.population:
        return f"a population ({figures.settings(record.population)}), seed {record.seed}"
    drawn = "drawn by TPE" if record.sampler == "tpe" else "drawn at random"
    pruned = f"pruned ({figures.settings(record.pruning)})" if record.pruning else "none pruned"
    return f"{drawn}, {pruned}, seed {record.seed}"


def setting_text(value: Any) -> str:
    """Writes the value of a setting, numbers in four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
