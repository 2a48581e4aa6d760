"""The facts of a search: its space, data and method; the best trial, and commands that use it."""

import shlex
from typing import Any

from bigtrk.config import override
from bigtrk.records.best import BEST_WEIGHTS
from bigtrk.records.run_folder import Run
from bigtrk.records.search import SearchFolder, SearchRecord, Trial
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.first_screen import OF, Headline
from bigtrk.reports.elements.metric_columns import DENOMINATORS, with_interval
from bigtrk.reports.facts import facts as run_facts
from bigtrk.reports.search.axes import Axis, as_number, axes, setting_text
from bigtrk.reports.search.metric import Metric, counts

OF_ALL = ("target", "trained on", "validated on", "engine")
OF_EACH = ("machine", "software")
MOST_EACH = 8
AT_THE_END = 0.02  # of the range of a setting


def search_sentence(search: SearchFolder) -> str:
    """Says what was searched on what, and how far the search is."""
    record, known = search.record, _of_runs(search)
    name = _section(record, "model").get("name")
    model = f" of {name} models" if isinstance(name, str) else ""
    epochs = as_number(_section(record, "training").get("epochs"))
    each = "" if epochs is None else f" of at most {epochs:.0f} epochs each"
    number = len(search.trials)
    trials = f"{figures.count(number)} trial{'' if number == 1 else 's'}"
    trained = f", trained on {known['trained on']} with {known['engine']}" if known else ""
    return (
        f"Search {search.folder.resolve().name}: {trials}{each}{model}{trained}; "
        f"{_method(record)}, seed {record.seed}. {progress(search)}."
    )


def progress(search: SearchFolder) -> str:
    """Counts the trials by what became of them."""
    found = counts(search)
    return ", ".join(f"{n} {name}" for name, n in found.items()) or "No trial has begun yet"


def search_headlines(search: SearchFolder, metric: Metric, best: Trial | None) -> list[Headline]:
    """Lists the best value, with its binomial interval where it has one, and what it took."""
    seconds = sum(epoch.seconds for trial in search.trials for epoch in trial.epochs)
    epochs = sum(len(trial.epochs) for trial in search.trials)
    numbers = [
        Headline("trials", figures.count(len(search.trials)), progress(search)),
        Headline("training, s", figures.seconds(seconds), f"{figures.count(epochs)} epochs"),
    ]
    if best is None:
        return numbers
    so_far = "" if best.record.state == "complete" else " so far"
    basis = f"{best.folder.name}{_interval(metric, best)}"
    value = metric.text(metric.value(best))
    return [Headline(f"{metric.title}, best{so_far}", value, basis), *numbers]


def search_verdict(search: SearchFolder, metric: Metric, best: Trial | None) -> list[str]:
    """Says with which settings the best trial trained, and which of them lie at an end of their
    bounds.
    """
    if best is None:
        return []
    settings = best.record.settings
    told = ", ".join(f"{key} {setting_text(value)}" for key, value in settings.items())
    so_far = "Best" if best.record.state == "complete" else "Best so far, not trained to its end"
    value = f"{metric.title} {metric.text(metric.value(best))}"
    ends = [axis.key for axis in axes(search.record) if _is_at_end(axis, settings.get(axis.key))]
    beyond = f"At an end of the bounds: {', '.join(ends)}; better values may lie beyond."
    return [f"{so_far}: {best.folder.name}, {value}, with {told}.", *([beyond] if ends else [])]


def best_commands(search: SearchFolder, best: Trial | None) -> list[tuple[str, str]]:
    """Lists what can be done with the best trial, once it has trained to its end: the command, and
    what it is for.
    """
    if best is None or best.record.state != "complete":
        return []
    weights = best.folder / BEST_WEIGHTS
    model = shlex.quote(str(weights if weights.exists() else best.folder))
    own = [override(key, value) for key, value in best.record.settings.items()]
    training = shlex.join([*search.record.given, *own])
    return [
        ("To evaluate the best weights:", f"bigtrk evaluate {model} GRAPHS"),
        ("To train with its settings:", f"bigtrk train {training}"),
    ]


def search_facts(search: SearchFolder) -> tuple[str, dict[str, str]]:
    """Makes the block of facts: a title, and text by label."""
    record = search.record
    model = {
        key: value
        for key, value in _section(record, "model").items()
        if f"model.{key}" not in record.space
    }
    known = {
        "searched": "; ".join(_searched(key, place) for key, place in record.space.items()),
        "for": f"{record.metric}, the {'smaller' if record.minimises else 'larger'} the better",
        "method": f"{_method(record)}, seed {record.seed}",
        "trials": progress(search),
        "model": figures.settings(model),
        **_of_runs(search),
    }
    return f"Search {search.folder.resolve().name}", known


def _of_runs(search: SearchFolder) -> dict[str, str]:
    """Says what the first run that has begun trains on, and the machines and versions of all."""
    known = [
        run_facts(Run(trial.folder, trial.run, (), trial.epochs))
        for trial in search.trials
        if trial.run
    ]
    if not known:
        return {}
    each = {label: list(dict.fromkeys(one[label] for one in known)) for label in OF_EACH}
    return {
        **{label: known[0][label] for label in OF_ALL},
        **{
            label: "; ".join([*found[:MOST_EACH], *(["..."] if len(found) > MOST_EACH else [])])
            for label, found in each.items()
        },
    }


def _method(record: SearchRecord) -> str:
    if record.population:
        every, lag = (record.population.get(key, 0) for key in ("every", "lag"))
        way = "asynchronous" if lag else "synchronous"
        return f"a population, {way}, in rounds of {every:g} epoch{'' if every == 1 else 's'}"
    drawn = "drawn by TPE" if record.sampler == "tpe" else "drawn at random"
    if record.pruning is None:
        return f"{drawn}, none pruned"
    first, factor = (record.pruning.get(key, 0) for key in ("first", "factor"))
    halving = f"after {first} epoch{'' if first == 1 else 's'}, the best 1/{factor} went on"
    return f"{drawn}, pruned by asynchronous successive halving ({halving})"


def _searched(key: str, place: Any) -> str:
    if isinstance(place, list):
        return f"{key}: {', '.join(map(setting_text, place))}"
    known = place if isinstance(place, dict) else {}
    ends = " to ".join(setting_text(known.get(end)) for end in ("low", "high"))
    step = "" if known.get("step") is None else f" in steps of {setting_text(known['step'])}"
    return f"{key}: {ends}{step}{' (logarithm)' if known.get('log') is True else ''}"


def _section(record: SearchRecord, name: str) -> dict[str, Any]:
    section = record.configuration.get(name)
    return section if isinstance(section, dict) else {}


def _interval(metric: Metric, trial: Trial) -> str:
    """Writes the binomial interval of the epoch with a trial's value, if it has one."""
    if metric.name not in DENOMINATORS:
        return ""
    for epoch, value in metric.by_epoch(trial):
        judged = (epoch.average or epoch).validation
        ends = with_interval(judged, metric.name)[1:]
        if judged and ends and value == metric.value(trial):
            shown = " to ".join(f"{metric.scale * end:.1f}" for end in ends)
            return f"; {shown}{OF}{figures.count(DENOMINATORS[metric.name](judged))}"
    return ""


def _is_at_end(axis: Axis, value: Any) -> bool:
    """Says whether a number lies within 2 % of its range from an end of it."""
    share = None if axis.choices else axis.share(value)
    return share is not None and not AT_THE_END < share < 1 - AT_THE_END
