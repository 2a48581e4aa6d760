"""The folder of a search: its request, `search.json`, and its trials so far, `result.json`."""

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
    Record,
    Text,
    read_if_any,
    read_record,
    some,
)
from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import RUN, read_epochs

SEARCH, RESULT = "search.json", "result.json"
DECISION, VALUE = "decision.json", "value.json"
State = Literal["running", "complete", "pruned", "failed"]
MOST_TRIALS = 100_000


class _SearchFile(FileRecord):
    made_again: ClassVar[str] = "search in another folder"

    format: Literal[1] = 1


class SearchRecord(_SearchFile):
    """`search.json`, which all that continues a search must ask for, too. space: the settings
    searched, as their file has them. configuration: that of all trials, without these, made of the
    arguments `given`. population: how it is trained, and its number of `trials`.
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
    """A trial so far. value: the metric of its best epoch, of a pruned one that of its last; of one
    of a population that after its last round; None: there is none yet. reason: why it failed.
    """

    number: Place
    state: State
    value: Number | None
    epochs: Count
    settings: dict[Text, Any] = some()
    reason: str = ""


class DecisionRecord(_SearchFile):
    """The decision on a trial of a population in a round: it trains from the checkpoint of the
    trial `source` after its round `source_round`, or its own where they are None, with `settings`,
    until it has trained so many `epochs`.
    """

    source: Count | None = None
    source_round: Count | None = None
    settings: dict[str, Any]
    epochs: Count


class ValueRecord(_SearchFile):
    """The metric of a trial of a population after a round; None: it failed, for a `reason`."""

    value: float | None
    reason: str = ""


class RoundRecord(Record):
    """A round of a trial of a population, both counted from 0: what was decided, as in
    `DecisionRecord`, and the metric after it; None: it has not ended, or failed.
    """

    round: Place
    trial: Place
    value: Number | None
    source: Place | None = None
    source_round: Place | None = None
    settings: dict[Text, Any]
    epochs: Count


class ResultRecord(_SearchFile):
    """`result.json`: the trials, the best first, and the `rounds` of a population. Searchers write
    it anew whenever a trial or a round begins or ends.
    """

    metric: Text
    trials: Annotated[tuple[TrialRecord, ...], Field(max_length=MOST_TRIALS)] = ()
    rounds: Annotated[tuple[RoundRecord, ...], Field(max_length=MOST_TRIALS)] = ()


@dataclass(frozen=True)
class Trial:
    """A trial and what its run folder holds by now: the run's record, once it has begun, and its
    epochs. is_training: somebody holds the folder, and has given a sign of life lately.
    """

    folder: Path
    record: TrialRecord
    run: RunRecord | None
    epochs: tuple[EpochRecord, ...]
    is_training: bool


@dataclass(frozen=True)
class SearchFolder:
    """A search as recorded so far; trials by number, rounds of a population in their order."""

    folder: Path
    record: SearchRecord
    trials: tuple[Trial, ...]
    rounds: tuple[RoundRecord, ...]


def trial_name(number: int) -> str:
    """Names a trial's run folder, and its claim."""
    return f"trial{number:04d}"


def best_first(trials: Sequence[TrialRecord], minimises: bool) -> list[TrialRecord]:
    """Sorts trials: those trained to the end by their value, then the others by number."""
    ended = [one for one in trials if one.state == "complete" and one.value is not None]
    numbers = {one.number for one in ended}
    others = [one for one in trials if one.number not in numbers]
    ended.sort(key=lambda one: (one.value or 0.0) * (1 if minimises else -1))
    return [*ended, *sorted(others, key=lambda one: one.number)]


def is_search(folder: Path) -> bool:
    """Whether a search has begun in `folder`."""
    return (folder / SEARCH).is_file()


def read_search_record(folder: Path) -> SearchRecord:
    """Reads `search.json`; raises InputError as `read_record`."""
    return read_record(SearchRecord, folder / SEARCH)


def read_search(folder: Path) -> SearchFolder:
    """Reads a search, which others may go on with meanwhile; the study is not needed.

    Raises:
        InputError: `search.json` is missing, or a record is of another format or broken.
    """
    record, trials = read_search_record(folder), []
    result = read_if_any(ResultRecord, folder / RESULT)
    for one in sorted(result.trials if result else (), key=lambda one: one.number):
        path = folder / trial_name(one.number)
        run, watch = read_if_any(RunRecord, path / RUN), LockWatch(path)
        lives, silence = watch.lives(), watch.silence()
        is_held = silence is not None and (lives or (lives is None and silence < DEAD))
        trials.append(Trial(path, one, run, read_epochs(path), is_held))
    return SearchFolder(folder, record, tuple(trials), result.rounds if result else ())
