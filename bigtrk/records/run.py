"""The records `run.json`, `best.json` and `stall.json` in a run's folder.

Values that a record does not know are None. Folders come from anywhere, so values are those that
reports can compute with.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, Field

from bigtrk.config import Count
from bigtrk.records.record import (
    MOST,
    FileRecord,
    Number,
    PathText,
    Place,
    Ranks,
    Ratio,
    Record,
    Text,
    some,
)

# Why a training ended: its epochs, its time, or `training.best.patience`. An imported model's
# training took place elsewhere.
End = Literal["epochs", "minutes", "patience", "imported"]
Scale = tuple[Number, Annotated[Number, Field(gt=0)]]


class DataRecord(Record):
    """The events on which a run trained. sources: the formats of the files behind the graphs.
    edge_efficiency, target_efficiency: mean fractions of an event's true edges in its graph, and of
    the true edges of particles above 1 GeV with at least 3 hits.
    """

    train_events: Count | None = None
    validation_events: Count | None = None
    nodes: Count | None = None
    edges: Count | None = None
    sources: Annotated[tuple[Text, ...], Field(max_length=MOST)] = ()
    edge_efficiency: Ratio | None = None
    target_efficiency: Ratio | None = None


class MeasuredScales(Record):
    """Mean and deviation, over the training events, of features without a scale of their own."""

    nodes: dict[Text, Scale] = some()
    edges: dict[Text, Scale] = some()


class MachineRecord(Record):
    """The host of rank 0."""

    host: Text | None = None
    cpu: Text | None = None
    cores: Count | None = None
    memory_bytes: Count | None = None
    accelerator: Text | None = None


class CodeRecord(Record):
    """The version of a user's code: a distribution and its version, or a file and its SHA-256."""

    source: PathText
    version: Text | None = None


class Resumption(Record):
    """The ranks, engine and user's code of a run since it was resumed after `step` steps."""

    step: Place
    launcher: Text | None = None
    world_size: Ranks | None = None
    engine_detail: Text | None = None
    code: dict[Text, CodeRecord] = some()


class RunRecord(FileRecord):
    """`run.json`: written when training starts, and again when it is resumed. code: the user's own
    code, by its name in `config`. ended: why the training ended; finished: when it ended.
    """

    made_again: ClassVar[str] = "train again"

    format: Literal[1] = 1
    bigtrk: Text | None = None
    git: Text | None = None
    software: dict[Text, Text | None] = some()
    machine: MachineRecord = MachineRecord()
    started: Text | None = None
    launcher: Text | None = None
    world_size: Ranks
    engine: Text
    engine_detail: Text | None = None
    parameters: Count | None = None
    steps_per_epoch: Count | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    measured: MeasuredScales = MeasuredScales()
    code: dict[Text, CodeRecord] = some()
    data: DataRecord = DataRecord()
    resumed: tuple[Resumption, ...] = ()
    ended: End | None = None
    finished: AwareDatetime | None = None

    def section(self, name: str) -> dict[str, Any]:
        """Returns a section of the configuration; {} if there is none."""
        found = self.config.get(name)
        return found if isinstance(found, dict) else {}

    def newest_code(self) -> dict[str, CodeRecord]:
        """Returns the code that trained the last steps, by its name in `config`."""
        newest = dict(self.code)
        for resumption in self.resumed:
            newest.update(resumption.code)
        return newest


BEST = "best.json"
BEST_WEIGHTS = "best.safetensors"  # of that epoch, once the run has ended


class BestRecord(FileRecord):
    """The best epoch so far, from 0, and its checkpoint, written after `step` steps."""

    made_again: ClassVar[str] = "resume the run, which writes it anew"

    format: Literal[1] = 1
    metric: Text
    value: Number
    epoch: Place
    step: Place
    checkpoint: Text


STALL = "stall.json"
Rank = Annotated[int, Field(ge=0, lt=2**17)]
LONGEST = 10_000  # letters: each rank at fault is named with its place


class StallRecord(FileRecord):
    """The ranks at fault, and the watchdog's message. ends: the stall ended the run."""

    made_again: ClassVar[str] = "remove it"

    format: Literal[1] = 1
    ranks: Annotated[tuple[Rank, ...], Field(max_length=MOST)]
    text: Annotated[str, Field(max_length=LONGEST)]
    ends: bool = False

    @classmethod
    def of(cls, ranks: tuple[int, ...], text: str, ends: bool) -> "StallRecord":
        """Makes the record, with at most MOST ranks and a shortened text."""
        return cls(ranks=ranks[:MOST], text=text[:LONGEST], ends=ends)
