"""Records of evaluations of runs and pipelines, in files never overwritten, and of `bigtrk score`.

Values that a record does not know are None.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import AwareDatetime, Field, model_validator

from bigtrk.config import Count
from bigtrk.disk.files import unlinked, write_new_json
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.records.record import (
    MOST,
    Bound,
    FileRecord,
    Measure,
    Number,
    PathText,
    Place,
    Ratio,
    Record,
    Text,
    read_record,
    some,
)

EVALUATIONS = "evaluations"
LONGEST_NAME = 100  # letters: file systems take 255, and a temporary file's name has more
LOG_AXES = ("pt", "distance", "vertex")  # on logarithmic axes
Counts = Annotated[tuple[Count, ...], Field(max_length=MOST)]


def _check_bins(limits: Sequence[float], *counts: Sequence[int]) -> None:
    if {len(each) for each in counts} != {len(limits) - 1}:
        raise ValueError("there are not as many counts as there are bins")
    if any(high <= low for low, high in pairwise(limits)):
        raise ValueError("limits of bins do not ascend")


class Binned(Record):
    """A ratio, part/whole, in B bins between B + 1 `edges`, with counts outside and of unknowns."""

    edges: tuple[Bound, ...]
    part: Counts
    whole: Counts
    outside: tuple[Count, Count] = (0, 0)
    unknown: tuple[Count, Count] = (0, 0)

    @model_validator(mode="after")
    def _is_binned(self) -> Self:
        _check_bins(self.edges, self.part, self.whole)
        return self


# Ratios by their names and quantities, as "efficiency_by_pt", "fakes_by_eta" or "merged_by_hits":
# of pt (GeV), eta, vertex (distance from the beam line, mm), hits and distance.
Bins = Annotated[Mapping[Text, Binned | None], Field(max_length=MOST)]


class EdgeScores(Record):
    """Counts of edges by score, in B bins between B + 1 limits; a bin includes its upper limit."""

    limits: Annotated[tuple[Ratio, ...], Field(min_length=2, max_length=MOST)]
    target: Counts
    other: Counts
    false: Counts

    @model_validator(mode="after")
    def _is_binned(self) -> Self:
        _check_bins(self.limits, self.target, self.other, self.false)
        return self


class MatchingRecord(Record):
    """Track matching in one style ("ATLAS", "one_way", "two_way") and mode ("acorn", "strict")."""

    style: Text
    mode: Text
    efficiency: Number | None = None
    fake_rate: Number | None = None
    duplicate_rate: Number | None = None
    n_particles: Count | None = None
    n_reconstructed: Count | None = None
    n_tracks: Count | None = None
    n_matched: Count | None = None
    bins: Bins | None = None


class CutRecord(MatchingRecord):
    """Track matching of the tracks built from edges with a score above `score_cut`."""

    score_cut: Number


class Judged(Record):
    """Results of judging one set of tracks."""

    trackml_score: Number | None = None
    matching: Annotated[tuple[MatchingRecord, ...], Field(max_length=MOST)] = ()

    def bins(self, mode: str) -> Bins:
        """Returns the bins of the first matching in `mode` that has bins; {} if there is none."""
        return next((x.bins for x in self.matching if x.mode == mode and x.bins), {})


class TrackRecord(Judged):
    """Tracks that `builder` made of edges with a score above `score_cut`; `pt_min` in GeV. perfect:
    tracks of perfect scores. losses: reconstructable particles by category of loss
    (`tracks/evaluation.py`); loss_bins: these in bins, as "merged_by_pt". scan: tracks by cut.
    """

    builder: Text = "components"
    score_cut: Number | None = None
    min_hits: Count | None = None
    pt_min: Number | None = None
    matching_fraction: Number | None = None
    perfect: Judged | None = None
    losses: dict[Text, Count] = some()
    loss_bins: dict[Text, Binned] = some()
    scan: Annotated[tuple[CutRecord, ...], Field(max_length=MOST)] = ()


class EvaluationRecord(FileRecord):
    """A file in `evaluations/` of a run's folder. data: the folder of events; `folders`: several.
    step: the steps trained, if known. weights: their file, if not the run's final one.
    """

    made_again: ClassVar[str] = "remove it and evaluate again"

    format: Literal[2] = 2
    data: Annotated[str, Field(max_length=MOST * 4096)]
    folders: Annotated[tuple[PathText, ...], Field(max_length=MOST)] = ()
    made: AwareDatetime
    step: Place | None = None
    weights: Text | None = None
    events: Count | None = None
    events_trained_on: Count = 0
    events_left_out: Count = 0
    edges: Count | None = None
    edge_metrics: MeanEdgeMetrics = MeanEdgeMetrics()
    edge_bins: Bins = some()
    scores: EdgeScores | None = None
    tracks: TrackRecord | None = None


class StageLeft(Record):
    """Counts over all events after a stage, and its `seconds` per event. target_edges: true edges
    of the target's particles. findable: particles that the remaining true edges could still find.
    """

    stage: Text
    edges: Count
    true_edges: Count
    target_edges: Count
    findable: Count
    seconds: Measure


class PipelineEvaluationRecord(FileRecord):
    """A file in `evaluations/` of a pipeline's folder. weights: digests of the stages' weights.
    edge_cut: the classifier's score above which an edge counts as kept; the track builder reads all
    edges. stages: "event" (all true edges), "radius", "filter", "classifier" and "builder" (true
    edges as if each track were a particle; `findable`: the particles found).
    """

    made_again: ClassVar[str] = "remove it and evaluate again"

    format: Literal[1] = 1
    data: PathText
    made: AwareDatetime
    weights: dict[Text, Text] = some()
    events: Count
    events_trained_on: Count = 0
    events_left_out: Count = 0
    hits: Count
    min_hits: Count
    pt_min: Number
    matching_fraction: Number
    edge_cut: Ratio
    stages: Annotated[tuple[StageLeft, ...], Field(max_length=MOST)]
    scores: EdgeScores | None = None
    tracks: Judged
    losses: dict[Text, Count] = some()
    loss_bins: dict[Text, Binned] = some()
    notes: Annotated[tuple[Text, ...], Field(max_length=MOST)] = ()


class EventScore(Judged):
    """Results for the tracks of one event with `hits` hits."""

    event: str
    hits: Count


class ColliderMLMetrics(Record):
    """The metrics of ColliderML's tracking task under that package's names, each in [0, 1]."""

    trackml_eff: float
    fake_rate: float
    dup_rate: float
    physics_eff_pt1: float


class ColliderMLScore(Record):
    """The public metrics over all submitted rows, and over the rows in a track (not -1)."""

    submitted: ColliderMLMetrics
    in_tracks: ColliderMLMetrics


class RuleScore(Record):
    """Counts by a published rule. particles, found: numbers of particles, or weights of hits."""

    rule: Text
    targets: Text
    counted_tracks: Text
    particles: Count | Number
    found: Count | Number
    tracks: Count
    fakes: Count


class ParameterBins(Record):
    """Pull widths and resolutions of a parameter between `edges`; None where tracks are few."""

    edges: tuple[float, ...]
    pull_width: tuple[Number | None, ...]
    resolution: tuple[Number | None, ...]


class ParameterScore(Record):
    """A fitted parameter compared with the truth: pulls, and resolution in mm, rad or 1/GeV. A
    width is half of the central 68 %. bins: by pt (GeV) and eta.
    """

    parameter: Text
    pull_median: Number | None
    pull_width: Number | None
    resolution: Number | None
    bins: dict[Text, ParameterBins]


class FitScore(Record):
    """Numbers of tracks, of converged fits, of fits judged (only particles from the beam line)."""

    tracks: Count
    converged: Count
    judged: Count
    parameters: tuple[ParameterScore, ...]


class ScoreRecord(Judged):
    """Scores of tracks over all events together, and by event; `pt_min` in GeV.

    events_without_tracks: the number of events of `data` that have no tracks in `tracks`. A public
    task counts them as events without a track; else they are left out. rules: empty if not asked
    for. fits: None if the tracks have no fits.
    """

    tracks: str
    data: str
    min_hits: Count
    pt_min: float
    matching_fraction: float
    events: tuple[EventScore, ...]
    events_without_tracks: Count
    colliderml: ColliderMLScore | None = None
    rules: tuple[RuleScore, ...] = ()
    fits: FitScore | None = None


Kind = TypeVar("Kind", EvaluationRecord, PipelineEvaluationRecord)


def write_evaluation(evaluated: Path, record: EvaluationRecord | PipelineEvaluationRecord) -> Path:
    """Writes a record, atomically, to a new file of the evaluated run or pipeline, and returns the
    path, as `graphs-20261122T064105Z.json` (UTC). InputError if `evaluations` is a symbolic link.
    """
    folder = unlinked(evaluated / EVALUATIONS)
    folder.mkdir(exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", Path(record.data).name)[:LONGEST_NAME]
    stem = f"{name}-{record.made.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    for number in count(1):
        path = folder / f"{stem}{'' if number == 1 else f'-{number}'}.json"
        with suppress(FileExistsError):
            write_new_json(path, record.model_dump(mode="json"))
            break
    return path


def read_evaluations(kind: type[Kind], evaluated: Path) -> tuple[Kind, ...]:
    """Reads the newest evaluation for each folder of data; raises as `read_record`."""
    newest: dict[str, Kind] = {}
    for path in sorted((evaluated / EVALUATIONS).glob("*.json")):
        record = read_record(kind, path)
        known = newest.get(record.data)
        if known is None or known.made <= record.made:
            newest[record.data] = record
    return tuple(newest[data] for data in sorted(newest))
