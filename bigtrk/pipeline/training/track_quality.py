"""Stage 5: the merge tree, its quality of tracks and its threshold, from held-back events."""

from collections.abc import Iterable

from bigtrk.console import say
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.records.pipeline import ThresholdPoint, ThresholdRecord
from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.merge_tree import MergeTree
from bigtrk.tracks.evaluation import listed_particles
from bigtrk.tracks.merge_tree_training import (
    UNCHOSEN,
    Scan,
    choose_threshold,
    cross_fitted_scan,
    known_event,
    train_quality,
)


def train_merge_tree(
    events: Iterable[tuple[EventGraph, ScoredGraph]], fakes: float, seed: int
) -> tuple[MergeTree, ThresholdRecord]:
    """Teaches the quality of tracks on graphs with truth and their scores, and chooses the
    threshold that leaves at most a share `fakes` of fakes.

    Raises:
        InputError: the events teach nothing (`train_quality`).
    """
    known = []
    for graph, scored in events:
        assert graph.particle_id is not None
        assert graph.particles is not None
        event = known_event(scored, graph.particle_id.numpy())
        known.append((event, listed_particles(graph.particles)))
    quality = train_quality([event for event, _ in known], seed)
    # One alone has no others to be judged by.
    scan = cross_fitted_scan(known, seed) if len(known) > 1 else {}
    threshold = choose_threshold(scan, fakes)
    say(_told(threshold, scan, fakes))
    points = tuple(
        ThresholdPoint(threshold=at, efficiency=found.efficiency, fake_rate=found.fake_rate)
        for at, found in scan.items()
    )
    record = ThresholdRecord(threshold=threshold, fakes=fakes, scan=points)
    return MergeTree(quality, threshold), record


def _told(threshold: float, scan: Scan, fakes: float) -> str:
    """Says what was chosen, and why."""
    if not scan:
        return (
            f"threshold {UNCHOSEN:g} of the quality: one held-back event alone can not choose it; "
            f"validation: 2 or more lets fakes: {fakes:g} do so"
        )
    found = scan[threshold]
    if found.fake_rate is None or found.efficiency is None:
        return f"threshold {threshold:g} of the quality: the held-back events have no tracks"
    told = (
        f"threshold {threshold:g} of the quality: finds {found.efficiency:.1%} of the particles of "
        f"the held-back events, with {found.fake_rate:.1%} fakes"
    )
    if found.fake_rate > fakes:
        told += f"; none leaves as few as {fakes:.1%}"
    return told
