"""Which events make which step: a function of (seed, epoch) and the number of events alone."""

import numpy as np


def step_events(n_events: int, events_per_step: int, seed: int, epoch: int) -> list[list[int]]:
    """The epoch's steps, each a list of event numbers; every event exactly once."""
    order = np.random.default_rng((seed, epoch)).permutation(n_events).tolist()
    return [order[i : i + events_per_step] for i in range(0, n_events, events_per_step)]
