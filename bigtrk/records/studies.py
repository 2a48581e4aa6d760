"""Searches (`search.json`, and trials in `result.json`) and scaling series (`series.json`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bigtrk.config import Count
from bigtrk.disk.folder_lock import DEAD, LockWatch
from bigtrk.records.metrics import EpochRecord
from bigtrk.records.record import (
    FileRecord,
    Number,
    Place,
    Ranks,
    Record,
    Text,
    read_if_any,
    read_record,
    some,
)
from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import RUN, read_epochs

SEARCH, RESULT = "search.json", "result.json"
JOURNAL = "study.log"  # Optuna's, which holds the study
VALUE = "value.json"
State = Literal["running", "complete", "pruned", "failed"]
MOST_TRIALS = 100_000


class _SearchFile(FileRecord):
    made_again: ClassVar[str] = "run the search again in another folder"

    format: Literal[1] = 1


class SearchRecord(_SearchFile):
    """`search.json`, which a command must match to continue the search. space: the settings that
    are searched. configuration: all other settings, the same for all trials, made of the arguments
    `given`. population: how a population is trained, and its number of `trials`.
    """

    metric: Text
    minimises: bool
    sampler: Literal["tpe", "random"]
    pruning: dict[Text, int] | None
    seed: int
    population: dict[Text, Number] | None = None
    space: dict[Text, Any] = some()
    given: tuple[str, ...] = ()
    configuration: dict[str, Any] = Field(default_factory=dict)


class TrialRecord(Record):
    """A trial so far. value: the metric that ranks it; reason: why it failed."""

    number: Place
    state: State
    value: Number | None
    epochs: Count
    settings: dict[Text, Any] = some()
    reason: str = ""


class ValueRecord(_SearchFile):
    """The metric of a population's trial after a round; None if it failed, for `reason`."""

    value: float | None
    reason: str = ""


class RoundRecord(Record):
    """A round of a trial, both counted from 0. It trains to epoch `epochs` from the checkpoint of
    trial `source` after its round `source_round` (None: its own). value: the metric at the end.
    """

    round: Place
    trial: Place
    value: Number | None
    source: Place | None = None
    source_round: Place | None = None
    settings: dict[Text, Any]
    epochs: Count


class ResultRecord(_SearchFile):
    """`result.json`: the trials so far, the best first, and the `rounds` of a population."""

    metric: Text
    trials: Annotated[tuple[TrialRecord, ...], Field(max_length=MOST_TRIALS)] = ()
    rounds: Annotated[tuple[RoundRecord, ...], Field(max_length=MOST_TRIALS)] = ()


@dataclass(frozen=True)
class Trial:
    """A trial and its run. is_training: a living process holds the run's folder."""

    folder: Path
    record: TrialRecord
    run: RunRecord | None
    epochs: tuple[EpochRecord, ...]
    is_training: bool


@dataclass(frozen=True)
class SearchFolder:
    """A search as recorded so far: trials by number, and a population's rounds in order."""

    folder: Path
    record: SearchRecord
    trials: tuple[Trial, ...]
    rounds: tuple[RoundRecord, ...]


def trial_name(number: int) -> str:
    """Returns the name of a trial's folder, for its run and in a round."""
    return f"trial{number:04d}"


def best_first(trials: Sequence[TrialRecord], minimises: bool) -> list[TrialRecord]:
    """Sorts trials: complete ones by value, the best first, then the others by number."""
    ended = [one for one in trials if one.state == "complete" and one.value is not None]
    numbers = {one.number for one in ended}
    others = [one for one in trials if one.number not in numbers]
    ended.sort(key=lambda one: (one.value or 0.0) * (1 if minimises else -1))
    return [*ended, *sorted(others, key=lambda one: one.number)]


def is_search(folder: Path) -> bool:
    """Whether a search has begun in `folder`."""
    return (folder / SEARCH).is_file()


def read_search(folder: Path) -> SearchFolder:
    """Reads a search, even while it runs; raises InputError as `read_record`."""
    record, trials = read_record(SearchRecord, folder / SEARCH), []
    result = read_if_any(ResultRecord, folder / RESULT)
    for one in sorted(result.trials if result else (), key=lambda one: one.number):
        path = folder / trial_name(one.number)
        run, watch = read_if_any(RunRecord, path / RUN), LockWatch(path)
        lives, silence = watch.lives(), watch.silence()
        is_held = silence is not None and (lives or (lives is None and silence < DEAD))
        trials.append(Trial(path, one, run, read_epochs(path), is_held))
    return SearchFolder(folder, record, tuple(trials), result.rounds if result else ())


SERIES = "series.json"
MOST_REPEATS = 1000


class SeriesRecord(FileRecord):
    """The request of a series. events, validation: numbers per rank (weak) or in all (strong).
    configuration: common to all runs. price_per_device_hour: in dollars. ranks_per_node: None for
    one host. cores_per_rank: of the host's `host_cores`; None on a cluster.
    """

    made_again: ClassVar[str] = "run the series again in another folder"

    format: Literal[1] = 1
    kind: Literal["weak", "strong"]
    ranks: Annotated[tuple[Ranks, ...], Field(max_length=4096)]
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)]
    events: Count
    validation: Count
    ranks_per_node: Ranks | None = None
    cores_per_rank: Ranks | None = None
    host_cores: Ranks | None = None
    price_per_device_hour: Number | None = None
    configuration: dict[str, Any] = Field(default_factory=dict)


def is_series(folder: Path) -> bool:
    return (folder / SERIES).is_file()
