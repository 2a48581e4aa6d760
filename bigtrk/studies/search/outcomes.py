"""The results of a search, as a table and as JSON."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bigtrk.console import say
from bigtrk.records.record import write_record
from bigtrk.records.run import BEST_WEIGHTS
from bigtrk.records.search import RESULT, ResultRecord, RoundRecord, TrialRecord, best_first
from bigtrk.studies.search.space import Space

if TYPE_CHECKING:
    from bigtrk.studies.search.plan import Search

SHOWN = 10


def write_outcomes(
    folder: Path,
    space: Space,
    outcomes: Sequence[TrialRecord],
    rounds: Sequence[RoundRecord] = (),
) -> None:
    """Writes `result.json`: all trials, the best first, and the rounds of a population.

    Raises:
        OSError: the disk refuses.
    """
    found = best_first(outcomes, space.minimises)
    record = ResultRecord(metric=space.metric, trials=tuple(found), rounds=tuple(rounds))
    write_record(folder / RESULT, record)


def show_outcomes(search: "Search", outcomes: Sequence[TrialRecord], console: Console) -> None:
    """Prints the best trials, how many came how far, and the command that goes on from the best."""
    found = best_first(outcomes, search.space.minimises)
    metric, keys = search.space.metric, list(search.space.settings)
    table = Table("trial", "", metric, "epochs", *keys, title=f"{search.folder}: {metric}")
    for one in found[:SHOWN]:
        value = "" if one.value is None else f"{one.value:.5g}"
        settings = [_short(one.settings.get(key, "")) for key in keys]
        name = search.run_folder(one.number).name
        table.add_row(name, one.state, value, str(one.epochs), *settings)
    console.print(table)
    states = [one.state for one in outcomes]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    say(", ".join(f"{count} {state}" for state, count in counts.items()))
    if found and found[0].state == "complete":
        say(_told(search.run_folder(found[0].number)))


def _told(best: Path) -> str:
    if not best.exists():
        return f"the best was {best}, a folder that is gone; its settings are in the table"
    weights = shlex.quote(str(best / BEST_WEIGHTS))
    return f"the best: bigtrk report {shlex.quote(str(best))}; its best weights: {weights}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
