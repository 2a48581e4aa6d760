"""Submissions judged as ColliderML's tracking task does it."""

from dataclasses import dataclass, replace

import numpy as np

from bigtrk.events.colliderml.layout import particle_numbers
from bigtrk.events.event import Event
from bigtrk.events.truth import hit_weights
from bigtrk.records.evaluation import ColliderMLMetrics, ColliderMLScore
from bigtrk.tracks.colliderml import NOTHING, ColliderMLCounts, count_submitted
from bigtrk.tracks.files import HitTracks


@dataclass
class ColliderMLTask:
    """The counts of the events so far: of all rows, and of those in tracks.

    by_place: events are of a ColliderML sample, which numbers particles from 0, as its submissions
    do.
    """

    by_place: bool
    submitted: ColliderMLCounts = NOTHING
    in_tracks: ColliderMLCounts = NOTHING

    def add(self, event: Event, tracks: HitTracks) -> None:
        """Counts an event with truth, and the rows that a submission has of it.

        Raises:
            InputError: the event has no truth.
        """
        if self.by_place and tracks.claimed is not None:
            tracks = replace(tracks, claimed=particle_numbers(tracks.claimed))
        self.submitted += count_submitted(event, tracks)
        self.in_tracks += count_submitted(event, tracks.in_tracks())

    def score(self) -> ColliderMLScore:
        """Makes the record of all events so far."""
        return ColliderMLScore(
            submitted=_metrics(self.submitted), in_tracks=_metrics(self.in_tracks)
        )


def _metrics(counts: ColliderMLCounts) -> ColliderMLMetrics:
    return ColliderMLMetrics(
        trackml_eff=counts.trackml_eff,
        fake_rate=counts.fake_rate,
        dup_rate=counts.dup_rate,
        physics_eff_pt1=counts.physics_eff_pt1,
    )


def with_weights(event: Event) -> Event:
    """Returns the event, whose hits weigh as much as each other where its truth does not say: then
    there is a TrackML score of all its hits beside the public one of those submitted.

    Raises:
        InputError: the event has no truth.
    """
    if hit_weights(event) is not None:
        return event
    assert event.truth is not None
    weight = np.ones(len(event.truth["hit_id"]))
    return replace(event, truth=event.truth | {"weight": weight})
