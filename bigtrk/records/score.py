"""The judgement of tracks from anywhere, as `bigtrk score` prints it."""

from bigtrk.config import Count
from bigtrk.records.evaluation import Judged
from bigtrk.records.record import Record


class EventScore(Judged):
    """The tracks of one event of `hits` hits."""

    event: str
    hits: Count


class ColliderMLMetrics(Record):
    """The metrics of ColliderML's tracking task under that package's names, each in [0, 1]."""

    trackml_eff: float
    fake_rate: float
    dup_rate: float
    physics_eff_pt1: float


class ColliderMLScore(Record):
    """The public metrics of all rows as submitted, and without those of track -1."""

    submitted: ColliderMLMetrics
    in_tracks: ColliderMLMetrics


class ScoreRecord(Judged):
    """The tracks of all events together, and of each; `pt_min` in GeV.

    tracks, data: where tracks and events are. events_without_tracks: events of `data` that `tracks`
    lacks, which are not judged unless by a public task. colliderml: judged by that task's metrics.
    """

    tracks: str
    data: str
    min_hits: Count
    pt_min: float
    matching_fraction: float
    events: tuple[EventScore, ...]
    events_without_tracks: Count
    colliderml: ColliderMLScore | None = None
