"""Training of the track quality on the candidates of events with truth.

Shapes: C candidates of all events, F features.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.errors import InputError
from bigtrk.tracks.builders.trees.known_event import MIN_HITS, KnownEvent
from bigtrk.tracks.builders.trees.quality import WIDTHS, Quality, logits, standardised

BATCH = 4096
# Two full events, of 45,000 candidates each, take STEPS. Taught on 13,000 for so long, tracks had
# more fakes than after 500 steps: 2.0 % against 1.3 % at threshold 0.5.
STEPS, LEAST_STEPS, PASSES = 2000, 300, 100
LEARNING_RATE = 3e-3


def train_quality(events: Sequence[KnownEvent], seed: int = 0) -> Quality:
    """Trains on the candidates of events with truth.

    The same events and seed give the same quality on one machine. Give events that the scores were
    not trained on: candidates of those are better than any that are to be judged later.

    Raises:
        InputError: of the candidates none or all are good tracks, or the modules of hits are known
            in some events only.
    """
    features, good = _examples(events)
    n_good = int(good.sum())
    if n_good in (0, len(good)):
        raise InputError(
            f"{n_good} of {len(good)} candidates of {MIN_HITS} hits or more are good tracks, which "
            f"teaches nothing of track quality; give more events, or those of better scores"
        )
    # Sums of a million values in float32 lose digits.
    mean = torch.from_numpy(features.mean(axis=0, dtype=np.float64)).float()
    deviation = torch.from_numpy(features.std(axis=0, dtype=np.float64)).float()
    scale = deviation.where(deviation > 0, 1)
    weights = _train(standardised(features, mean, scale), torch.from_numpy(good), seed)
    weights = [weight.detach() for weight in weights]
    return Quality(events[0].with_modules, mean, scale, tuple(weights))


def _examples(events: Sequence[KnownEvent]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the features [C, F] of all candidates, and 1 for those that are good, else 0 [C]."""
    if len({event.with_modules for event in events}) > 1:
        raise InputError("the modules of hits are known in some events alone; leave the others out")
    empty = np.zeros((0, WIDTHS[0]), np.float32)
    features = [event.candidates.features for event in events]
    good = [event.good().astype(np.float32) for event in events]
    return np.concatenate([empty, *features]), np.concatenate([empty[:, 0], *good])


def _train(features: Tensor, good: Tensor, seed: int) -> list[Tensor]:
    """Minimises the mean cross entropy; the learning rate falls linearly to 0."""
    generator = torch.Generator().manual_seed(seed)
    weights = _fresh(generator)
    steps = n_steps(len(good))
    optimizer = torch.optim.Adam(weights, LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(steps):
        rows = torch.randint(len(good), (BATCH,), generator=generator)
        loss = binary_cross_entropy_with_logits(logits(weights, features[rows]), good[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return weights


def n_steps(n_candidates: int) -> int:
    """Returns the steps that see each candidate PASSES times, from LEAST_STEPS to STEPS."""
    return min(max(PASSES * n_candidates // BATCH, LEAST_STEPS), STEPS)


def _fresh(generator: torch.Generator) -> list[Tensor]:
    """Draws weights and biases as nn.Linear does."""
    weights = []
    for inputs, outputs in pairwise(WIDTHS):
        for shape in ((outputs, inputs), (outputs,)):
            drawn = torch.empty(shape).uniform_(-1, 1, generator=generator) * inputs**-0.5
            weights.append(drawn.requires_grad_())
    return weights
