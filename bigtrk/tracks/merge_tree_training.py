"""Learns the quality of tracks from events with truth; chooses its threshold by the fake rate.

Shapes: N hits, C candidates, F features.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.console import follow
from bigtrk.errors import InputError
from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.candidates import (
    Candidates,
    HitGroups,
    are_good,
    are_pure,
    find_candidates,
)
from bigtrk.tracks.builders.chains import Chains, find_chains
from bigtrk.tracks.builders.hit_tree import HitTree, Ids, grow
from bigtrk.tracks.builders.merge_tree import (
    SURE,
    WIDTHS,
    Quality,
    SecondPass,
    logits,
    standardised,
    tracks_at,
    triplets_left,
)
from bigtrk.tracks.matching import Matching, Particles, TrackMetrics, match_tracks, pooled

MIN_HITS = 3  # of a track that is judged


@dataclass(frozen=True)
class KnownEvent:
    """An event with truth: its tree of hits, its candidates of MIN_HITS or more hits, and each
    hit's particle [N] (0: noise).

    It takes about 200 bytes per hit, besides its graph.
    """

    graph: ScoredGraph
    tree: HitTree
    candidates: Candidates
    particle_id: Ids


def known_event(graph: ScoredGraph, particle_id: Ids) -> KnownEvent:
    """Grows the tree of a scored graph and lists its candidates. particle_id [N] (0: noise)."""
    tree = grow(graph)
    candidates = find_candidates(tree, graph.position, MIN_HITS)
    return KnownEvent(graph, tree, candidates, particle_id)


BATCH = 4096
# Two full events of 45,000 candidates each are trained for STEPS. On 13,000 candidates, that many
# steps gave more fakes than 500 steps did: 2.0 % against 1.3 % at threshold 0.5.
STEPS, LEAST_STEPS, PASSES = 2000, 300, 100
LEARNING_RATE = 3e-3


def train_quality(events: Sequence[KnownEvent], seed: int = 0) -> Quality:
    """Trains three networks on events with truth. One judges candidates; the others judge triplets
    and chains of the hits that good candidates leave. There is no second pass if none or all of the
    triplets are of one particle, or none or all of the chains are good tracks.

    The same events and seed give the same quality on one machine. Give events that the scores were
    not trained on: candidates in training events are better than in the events judged later.

    Raises:
        InputError: none or all of the candidates are good tracks, or only some of the events know
            the modules of their hits.
    """
    if len({event.graph.modules is None for event in events}) > 1:
        raise InputError("only some events name the module of each hit; leave the others out")
    features, good = _examples(events, [one.candidates for one in events], are_good)
    quality = _learnt(features, good, events, seed)
    if quality is None:
        raise InputError(
            f"{int(good.sum())} of {len(good)} candidate tracks of {MIN_HITS} hits or more are "
            "good, but track quality is learnt from good and bad ones; give more events, or better "
            "edge scores"
        )
    left = [
        triplets_left(
            one.graph, one.tree, one.candidates, quality(one.candidates.features) - SURE, MIN_HITS
        )[1]
        for one in events
    ]
    found = [one.chains for one in left]
    triplets = _learnt(*_examples(events, found, are_pure), events, seed)
    if triplets is None:
        return quality
    pairs = zip(events, left, strict=True)
    found = [find_chains(event.graph, one, triplets, MIN_HITS) for event, one in pairs]
    chains = _learnt(*_examples(events, found, are_good), events, seed)
    return quality if chains is None else replace(quality, second=SecondPass(triplets, chains))


def _learnt(
    features: NDArray[np.float32],
    good: NDArray[np.float32],
    events: Sequence[KnownEvent],
    seed: int,
) -> Quality | None:
    """Trains a network on examples, features [C, F] and labels [C], by mean cross entropy; the
    learning rate falls linearly to 0. None if none or all of the examples are good.
    """
    if int(good.sum()) in (0, len(good)):
        return None
    # Sums of a million values in float32 lose digits.
    mean = torch.from_numpy(features.mean(axis=0, dtype=np.float64)).float()
    deviation = torch.from_numpy(features.std(axis=0, dtype=np.float64)).float()
    scale = deviation.where(deviation > 0, 1)
    inputs, labels = standardised(features, mean, scale), torch.from_numpy(good)
    generator = torch.Generator().manual_seed(seed)
    weights = _fresh(generator)
    # The number that shows each candidate PASSES times, within limits.
    steps = min(max(PASSES * len(good) // BATCH, LEAST_STEPS), STEPS)
    optimizer = torch.optim.Adam(weights, LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(steps):
        rows = torch.randint(len(good), (BATCH,), generator=generator)
        loss = binary_cross_entropy_with_logits(logits(weights, inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    trained = tuple(weight.detach() for weight in weights)
    return Quality(events[0].graph.modules is not None, mean, scale, trained)


def _examples(
    events: Sequence[KnownEvent],
    found: Sequence[Candidates | Chains],
    label: Callable[[HitGroups, Ids], NDArray[np.bool_]],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the features [C, F] of all that was found in the events, and their labels [C]."""
    empty = np.zeros((0, WIDTHS[0]), np.float32)
    pairs = zip(events, found, strict=True)
    good = [label(one.hits, event.particle_id).astype(np.float32) for event, one in pairs]
    features = np.concatenate([empty, *(one.features for one in found)])
    return features, np.concatenate([empty[:, 0], *good])


def _fresh(generator: torch.Generator) -> list[Tensor]:
    """Draws a network's initial weights and biases, distributed as nn.Linear's."""
    weights = []
    for inputs, outputs in pairwise(WIDTHS):
        for shape in ((outputs, inputs), (outputs,)):
            drawn = torch.empty(shape).uniform_(-1, 1, generator=generator) * inputs**-0.5
            weights.append(drawn.requires_grad_())
    return weights


UNCHOSEN = 0.5  # weighs a fake and a lost particle equally
# In Fatras's events 0.005 found 0.2 % more particles than 0.025, and few fakes.
THRESHOLDS = (0.005, 0.01, *(step / 40 for step in range(1, 40)))
# A track and a particle match as in the first lines of `bigtrk score`.
MATCHING = Matching("ATLAS", "strict", pt_min=1.0, min_track_length=MIN_HITS, hits_min=MIN_HITS)

Scan = dict[float, TrackMetrics]  # of the tracks at each threshold


def cross_fitted_scan(events: Sequence[tuple[KnownEvent, Particles]], seed: int) -> Scan:
    """Adds up the scans of events, each with a quality learnt from the other events. A quality
    learnt from the event itself would know its tracks, and leave fewer fakes than elsewhere.
    InputError if there are no other events, or they teach nothing (`train_quality`).
    """
    scans = []
    shown = follow(events, len(events), "choosing the threshold")
    for left_out, (event, particles) in enumerate(shown):
        others = [known for row, (known, _) in enumerate(events) if row != left_out]
        quality = train_quality(others, seed)
        tracks = tracks_at(event.graph, event.tree, event.candidates, quality, MIN_HITS)
        found = (
            match_tracks(tracks(threshold), event.particle_id, particles, MATCHING)
            for threshold in THRESHOLDS
        )
        scans.append([judgement.metrics for judgement in found])
    return dict(zip(THRESHOLDS, map(pooled, zip(*scans, strict=True)), strict=True))


def choose_threshold(scan: Mapping[float, TrackMetrics], fakes: float) -> float:
    """Returns the threshold that finds the most particles, among those at which at most a share
    `fakes` of the tracks match no particle. If several find as many, returns the highest.

    If none has so few fakes, returns the one with the fewest; UNCHOSEN if there are no tracks.
    """
    made = {threshold: found for threshold, found in scan.items() if found.n_tracks}
    n_fakes = {threshold: found.n_tracks - found.n_matched for threshold, found in made.items()}
    within = [at for at, found in made.items() if n_fakes[at] <= fakes * found.n_tracks]
    if within:
        return max(within, key=lambda at: (made[at].n_reconstructed, at))
    return min(made, key=lambda at: (n_fakes[at] / made[at].n_tracks, at), default=UNCHOSEN)
