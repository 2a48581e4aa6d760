"""The report of a search, finished or not: the best trial, commands that use it, all trials.

Plots of trials and settings are those of optuna-dashboard.
"""

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bigtrk.config import override
from bigtrk.errors import one_line, shell_word
from bigtrk.records.metrics import metric_of
from bigtrk.records.run import BEST_WEIGHTS
from bigtrk.records.run_folder import Run
from bigtrk.records.studies import JOURNAL, SearchFolder, SearchRecord, Trial
from bigtrk.reports import figures
from bigtrk.reports.document import Command, Curve, Document, Facts, Number, Plot, Plots, Table
from bigtrk.reports.facts import facts as run_facts
from bigtrk.reports.metrics import METRICS

# Title and scale by name, as other pages have them.
TITLES = {
    **{name: (title, scale) for name, (title, _, scale) in METRICS.items()},
    "train_loss": ("Training loss", 1.0),
    "log_pt_error": ("Error of log pT", 1.0),
}
# In the order of the table. Of trials that have not ended, a process trains some; others wait.
STATES = ("complete", "training", "waiting", "pruned", "failed")
MOST_ROWS, MOST_REASONS = 500, 10
VALUE_NOTE = (
    "The value is that of a trial's best epoch; of a pruned trial that of its last epoch; in a "
    "population that after the last round."
)


class _Search:
    """A search, with its best trial and the value so far of each trial, by number."""

    def __init__(self, folder: SearchFolder) -> None:
        self.folder, self.record, self.trials = folder.folder, folder.record, folder.trials
        self.name = folder.folder.resolve().name
        self.title, self.scale = TITLES.get(self.record.metric, (self.record.metric, 1.0))
        self.values = {trial.record.number: self._value(trial) for trial in self.trials}
        known = [trial for trial in self.trials if self.values[trial.record.number] is not None]
        found = [trial for trial in known if trial.record.state == "complete"] or known
        self.best = min(found, key=self.cost, default=None)
        states = Counter(map(state, self.trials))
        told = [f"{states[name]} {name}" for name in STATES if name in states]
        self.progress = ", ".join(told) or "No trial has begun yet"

    def curve(self, trial: Trial) -> list[tuple[int, float]]:
        """Returns (epoch from 1, metric) of a trial, for the epochs that record the metric."""
        if self.record.metric not in TITLES:
            return []
        known = [(epoch.number, metric_of(self.record.metric, epoch)) for epoch in trial.epochs]
        return [(number, x) for number, x in known if x is not None and math.isfinite(x)]

    def _value(self, trial: Trial) -> float | None:
        if trial.record.value is not None:
            return trial.record.value
        values = [x for _, x in self.curve(trial)]
        return (min if self.record.minimises else max)(values, default=None)

    def cost(self, trial: Trial) -> float:
        """Returns a trial's value, with a sign such that smaller is better."""
        return (self.values[trial.record.number] or 0.0) * (1 if self.record.minimises else -1)

    def text(self, trial: Trial) -> str:
        value = self.values[trial.record.number]
        return figures.DASH if value is None else f"{self.scale * value:.5g}"


def search_report(folder: SearchFolder) -> Document:
    """Makes the report of a search, finished or not."""
    search = _Search(folder)
    trials = figures.count_of(len(search.trials), "trial")
    return Document(
        title=f"bigtrk search: {search.name}",
        lead=f"{trials}, {_method(search.record)}. {search.progress}.",
        numbers=[(search.name, [*_numbers(search)])],
        verdict=[*_verdict(search)],
        parts=[
            *_commands(search),
            Plots("Values", [_plot(search)]),
            _trials(search),
            _facts(search),
        ],
    )


def summarise_search(folder: SearchFolder) -> dict[str, Any]:
    """Returns what was searched, the best trial and all trials, for JSON."""
    search = _Search(folder)
    return {
        "folder": str(folder.folder),
        **folder.record.model_dump(mode="json"),
        "best": search.best and search.best.record.number,
        "trials": [
            {
                **trial.record.model_dump(mode="json"),
                "folder": str(trial.folder),
                "state": state(trial),
                "value": search.values[trial.record.number],
                "curve": search.curve(trial),
            }
            for trial in folder.trials
        ],
        "rounds": [one.model_dump(mode="json") for one in folder.rounds],
    }


def state(trial: Trial) -> str:
    """Returns the state of a trial, one of STATES."""
    if trial.record.state != "running":
        return trial.record.state
    return "training" if trial.is_training else "waiting"


def _numbers(search: _Search) -> Iterator[Number]:
    if best := search.best:
        label = f"{search.title}, best{'' if best.record.state == 'complete' else ' so far'}"
        yield Number(label, search.text(best), best.folder.name)
    epochs = [epoch.seconds for trial in search.trials for epoch in trial.epochs]
    yield Number("trials", figures.count(len(search.trials)), search.progress)
    yield Number(
        "training, s", figures.seconds(sum(epochs)), figures.count_of(len(epochs), "epoch")
    )


def _verdict(search: _Search) -> Iterator[str]:
    if best := search.best:
        settings = [f"{key} {setting_text(x)}" for key, x in best.record.settings.items()]
        is_complete = best.record.state == "complete"
        so_far = "Best" if is_complete else "Best so far, not trained to its end"
        name, _, unit = search.title.partition(", ")
        value = f"{search.text(best)} {unit}".rstrip()
        yield f"{so_far}: {best.folder.name} with {', '.join(settings)}. {name}: {value}."


def _commands(search: _Search) -> Iterator[Command]:
    """Yields commands that use the best trial, once it is trained, and that show plots."""
    best = search.best
    if best is not None and best.record.state == "complete":
        weights = best.folder / BEST_WEIGHTS
        model = shell_word(weights if weights.exists() else best.folder)
        own = [override(key, value) for key, value in best.record.settings.items()]
        training = shlex.join([*search.record.given, *own])
        yield Command("To evaluate the best weights:", f"bigtrk evaluate {model} GRAPHS")
        yield Command("To train with its settings:", f"bigtrk train {training}")
    if not search.record.population:
        shown = shell_word(search.folder / JOURNAL)
        yield Command("For plots, in a browser:", f"optuna-dashboard {shown}")


def _plot(search: _Search) -> Plot:
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in STATES}
    for trial in search.trials:
        if (value := search.values[trial.record.number]) is not None:
            points[state(trial)].append((trial.record.number, search.scale * value))
    dots = [Curve(name, found, i, "dots") for i, (name, found) in enumerate(points.items())]
    return Plot(f"{search.title} by trial", ("trial",), dots, whole=True)


def _trials(search: _Search) -> Table:
    space = search.record.space
    ranked = sorted(search.trials, key=lambda one: (STATES.index(state(one)), search.cost(one)))
    rows = []
    for trial in ranked[:MOST_ROWS]:
        seconds = sum(epoch.seconds for epoch in trial.epochs) or None
        settings = [setting_text(trial.record.settings.get(key, figures.DASH)) for key in space]
        told = (search.text(trial), figures.count(len(trial.epochs)), figures.seconds(seconds))
        rows.append((trial.folder.name, state(trial), *told, *settings))
    left, unknown = len(ranked) - len(rows), "for a reason that was not recorded"
    failed = [trial for trial in search.trials if trial.record.state == "failed"]
    reasons = [
        f"{trial.folder.name} failed: {one_line(trial.record.reason) or unknown}"
        for trial in failed[:MOST_REASONS]
    ]
    more = [f"result.json has {figures.count_of(left, 'more trial')}."] if left else []
    columns = ("trial", "state", search.title, "epochs", "time, s", *space)
    return Table("Trials", columns, tuple(rows), (VALUE_NOTE, *more, *reasons), text_columns=2)


def _facts(search: _Search) -> Facts:
    record = search.record
    model = record.configuration.get("model")
    own = model if isinstance(model, dict) else {}
    shared = {x: y for x, y in own.items() if y is not None and f"model.{x}" not in record.space}
    facts = {
        "searched": ", ".join(f"{key} {_range_text(x)}" for key, x in record.space.items()),
        "for": f"{record.metric}, the {'smaller' if record.minimises else 'larger'} the better",
        "method": _method(record),
        "model": figures.settings(shared),
    }
    runs = (Run(x.folder, x.run, (), x.epochs) for x in search.trials if x.run)
    if run := next(runs, None):
        known = run_facts(run)
        labels = ("target", "trained on", "validated on", "engine", "machine", "software")
        facts |= {label: known[label] for label in labels}
    return Facts(f"Search {search.name}", facts)


def _range_text(values: Any) -> str:
    """Writes the range or choices of a setting: "8 to 32 in steps of 8", "constant or cosine"."""
    if isinstance(values, list):
        return " or ".join(map(setting_text, values))
    if not isinstance(values, dict):  # of a file that bigtrk did not write
        return setting_text(values)
    steps = f" in steps of {setting_text(values['step'])}" if values.get("step") else ""
    log = " on a log scale" if values.get("log") else ""
    return f"{setting_text(values.get('low'))} to {setting_text(values.get('high'))}{steps}{log}"


def _method(record: SearchRecord) -> str:
    if record.population:
        return f"a population ({figures.settings(record.population)}), seed {record.seed}"
    drawn = f"drawn {'by TPE' if record.sampler == 'tpe' else 'at random'}, seed {record.seed}"
    if not record.pruning:
        return f"{drawn}, none pruned"
    first, factor = record.pruning["first"], record.pruning["factor"]
    return f"{drawn}; after {first}, {factor * first}, ... epochs the best 1/{factor} go on"


def setting_text(value: Any) -> str:
    """Writes the value of a setting; numbers get four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
