"""The judgement of tracks from anywhere, as `bigtrk score` prints it."""

from bigtrk.config import Count
from bigtrk.records.evaluation import Judged


class EventScore(Judged):
    """The tracks of one event of `hits` hits."""

    event: str
    hits: Count


class ScoreRecord(Judged):
    """The tracks of all events together, and of each; `pt_min` in GeV.

    tracks, data: where tracks and events are. events_without_tracks: events of `data` that `tracks`
    lacks, which are not judged.
    """

    tracks: str
    data: str
    min_hits: Count
    pt_min: float
    matching_fraction: float
    events: tuple[EventScore, ...]
    events_without_tracks: Count
