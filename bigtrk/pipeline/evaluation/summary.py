"""The losses of several events in a pipeline, as records."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from statistics import fmean

import numpy as np

from bigtrk.pipeline.evaluation.event_losses import BUILDER, CATEGORIES, EVENT, EventLosses
from bigtrk.pipeline.evaluation.event_truth import StageCounts
from bigtrk.records.evaluation import Binned, Judged, StageLeft
from bigtrk.tracks.bins import added
from bigtrk.tracks.evaluation import summarise_judged
from bigtrk.tracks.matching import Matching
from bigtrk.training.evaluation.track_records import binned, judged_record

# The parts of a passage whose seconds are those of a stage.
PARTS = {
    EVENT: (),
    "radius": ("embedding", "radius", "features"),
    "filter": ("filter",),
    "classifier": ("classifier",),
    BUILDER: ("tracks",),
}


def stages_left(events: Sequence[EventLosses]) -> tuple[StageLeft, ...]:
    """Adds up what each stage leaves of events (at least one)."""
    return tuple(_stage(name, events) for name in PARTS)


def tracks_record(events: Sequence[EventLosses], matchings: Sequence[Matching]) -> Judged:
    """Adds up the tracks of events (at least one), each judged by `matchings`."""
    return judged_record(summarise_judged([event.tracks for event in events], matchings))


def loss_counts(events: Sequence[EventLosses]) -> dict[str, int]:
    """Counts the particles of events (at least one) by CATEGORIES."""
    counts = np.sum([event.losses for event in events], axis=0).tolist()
    return dict(zip(CATEGORIES, counts, strict=True))


def loss_bins_record(events: Sequence[EventLosses]) -> dict[str, Binned]:
    """Adds up the particles of events (at least one) by category in bins."""
    bins = added([event.loss_bins for event in events])
    return {name: binned(ratio) for name, ratio in bins.items()}


def _stage(name: str, events: Sequence[EventLosses]) -> StageLeft:
    counts = _sum([event.stages[name] for event in events])
    seconds = fmean(sum(event.passage.seconds[part] for part in PARTS[name]) for event in events)
    return StageLeft(stage=name, **asdict(counts), seconds=seconds)


def _sum(counts: Sequence[StageCounts]) -> StageCounts:
    names = [field.name for field in fields(StageCounts)]
    return StageCounts(*(sum(getattr(each, name) for each in counts) for name in names))
