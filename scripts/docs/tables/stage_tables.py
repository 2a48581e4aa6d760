"""Tables of the stages from hits to tracks: targets and track builders."""

from collections.abc import Callable
from typing import Any

from scripts.docs.table import Table, percent

EVENTS = {"simulated": "simulated", "event1000": "event 1000"}
JUDGED = {
    "fatras": "Fatras",
    "simulated": "simulated",
    "event1000": "event 1000",
    "fatras_pixels": "Fatras, pixels",
    "simulated_pixels": "simulated, pixels",
    "event1000_pixels": "event 1000, pixels",
}
BY = {"ckf": "Kalman filter", "bigtrk": "bigtrk"}
BUILDERS = {
    "components": "components",
    "junction_removal": "junction removal",
    "walk": "walk",
    "fast_walk": "fast walk",
    "merge_tree": "merge tree",
}


def targets(found: Any) -> Table:
    """Lists what the pipeline is to reach, and what it does: means and deviations over seeds."""
    summary, deviation = found["summary"], found["summary"]["deviation"]

    def of(*keys: str, form: Callable[[float], str] = lambda share: percent(share, 1)) -> str:
        value, spread = _number(summary, keys), _number(deviation, keys)
        if value is None:
            return "not measured"
        return form(value) if spread is None else f"{form(value)} ± {form(spread)}"

    def tracks(events: str) -> str:
        return f"{of(events, 'efficiency')}; {of(events, 'fake')} fakes"

    def millions(value: float) -> str:
        return f"{value / 1e6:.2f} M"

    edges = f"{of('edges', form=millions)} at {of('edge_efficiency')}"
    rows = [
        ["simulated, above 1 GeV, fakes at most 1.7 %", "95 %", "97 %", tracks("simulated")],
        ["event 1000, likewise, fakes at most 1.2 %", "97 %", "98.5 %", tracks("event1000")],
        ["simulated, two-way", "94 %", "96.5 %", of("simulated", "two_way")],
        ["event 1000, two-way", "95.5 %", "97.5 %", of("event1000", "two_way")],
        ["edges after the filter, at 98.8 % of the target edges", "0.36 M", "0.2 M", edges],
        ["efficiency, merge tree - components, at equal fakes", "+4 %", "+8 %", of("builder_gain")],
        [
            "seconds of a simulated event, hits to tracks",
            "10",
            "",
            of("seconds_per_event", form=lambda value: f"{value:.1f}"),
        ],
    ]
    return Table(("", "bar", "goal", "found"), rows)


def _number(summary: Any, keys: tuple[str, ...]) -> float | None:
    """Looks a number up; None where it is not there."""
    for key in keys:
        summary = (summary or {}).get(key)
    return None if summary is None else float(summary)


def builders(found: Any) -> Table:
    """Lists each track builder at the best of its cuts, and at the merge tree's fakes."""
    rows = [
        [EVENTS[events], BUILDERS[name], where, *_tracks(builder[key])]
        for events, compared in found["compared"].items()
        for key, where in (("best", "best cut"), ("equal_fakes", "equal fakes"))
        for name, builder in compared.items()
    ]
    columns = (
        "", "builder", "at", "cut", "efficiency", "fakes", "duplicates", "two-way",
        "TrackML score", "s",
    )  # fmt: skip
    return Table(columns, rows, texts=3)


def _tracks(row: Any) -> list[str]:
    if row is None:
        return ["none", *[""] * 6]
    rates = (row[key] for key in ("efficiency", "fake", "duplicate", "two_way"))
    score = row["trackml_score"]
    return [
        f"{row['cut']:.3g}",
        *(percent(rate, 1) for rate in rates),
        "" if score is None else f"{score:.3f}",
        f"{row['seconds']:.2f}",
    ]


def scoreboard(found: Any) -> Table:
    """Lists the tracks of bigtrk and of the Kalman filter on the same events, by several rules."""
    rows = [
        [
            JUDGED[events],
            BY[by],
            *(percent(row[key], 1) for key in ("efficiency", "fake", "two_way")),
            *(percent(row["heptv2"][key], 1) for key in ("efficiency", "fake")),
            percent(row["soft"]["efficiency"], 1),
            "" if row["seconds"] is None else f"{row['seconds']:.1f}",
        ]
        for events, judged in found["found"].items()
        for by, row in judged.items()
    ]
    columns = (
        "events", "tracks by", "strict", "fakes", "two-way", "HEPTv2", "fakes", "above 0.5 GeV",
        "s",
    )  # fmt: skip
    return Table(columns, rows, texts=2)


def scoreboard_losses(found: Any) -> Table:
    """Lists which share of the particles above 1 GeV each stage of the pipeline loses."""
    budgets = found["losses"]
    names = list(dict.fromkeys(name for budget in budgets.values() for name in budget))
    rows = [
        [JUDGED[events], *(percent(budget[name] / sum(budget.values()), 1) for name in names)]
        for events, budget in budgets.items()
    ]
    return Table(("events", *(name.replace("_", " ") for name in names)), rows)


def transfer(found: Any) -> Table:
    """Lists what pipelines find, by the events that they were trained on and judged on."""
    sets = [*found["summary"]["both"]]
    names = JUDGED | {"both": "both"}
    rows = [
        [names[name], *(_efficiency_and_fakes(found_on[one]) for one in sets)]
        for name, found_on in found["summary"].items()
    ]
    return Table(("trained on", *(names[one] for one in sets)), rows)


def _efficiency_and_fakes(row: Any) -> str:
    return f"{percent(row['efficiency'], 1)}; {percent(row['fake'], 1)} fakes"
