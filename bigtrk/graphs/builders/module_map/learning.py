"""A module map learnt from truth: the triplets of modules that particles pass, and their windows.

A map of all triplets takes tens of thousands of events; of fewer, most triplets are seen once or
twice, which shows little of their spread. So each window is widened by what it cannot know yet: the
spread of the feature on all triplets of the same three layers, the less the oftener it was seen.

Shapes: K triplets of hits seen, T different triplets of modules, F features.
"""

from collections.abc import Iterable

import numpy as np

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.truth import module_ids
from bigtrk.graphs.builders.doublets import expand
from bigtrk.graphs.builders.module_map.features import changes, doublet_features, hit_places
from bigtrk.graphs.builders.module_map.groups import grouped, numbered
from bigtrk.graphs.builders.module_map.module_map import FEATURES, Bounds, ModuleMap
from bigtrk.graphs.builders.module_map.names import MapWindows
from bigtrk.graphs.builders.radius import true_pairs
from bigtrk.graphs.builders.window_learning import teaches
from bigtrk.graphs.coordinates import Floats, Ints

SIGMAS = 3.0
# Half of what lies between is a standard deviation of a normal distribution, and few outliers,
# scattered particles among them, do not widen it.
QUANTILES = (0.1587, 0.8413)


def learn_module_map(
    events: Iterable[Event], made: str, pt_min: float = 1.0, min_hits: int = 3
) -> ModuleMap:
    """Learns the triplets of modules that three consecutive hits of a target particle lie on, also
    where modules of a layer overlap.

    Target particles have pT > `pt_min` GeV and >= `min_hits` hits. Triplets of hits without a slope
    (dr = 0) teach nothing. Each full event takes about 2 MB of memory.

    Raises:
        InputError: an event has no truth, or no target particle has three such hits.
    """
    seen = [_seen(event, pt_min, min_hits) for event in events]
    keys = np.concatenate([np.empty((0, 9), dtype=np.int64), *(keys for keys, _ in seen)])
    values = np.concatenate([np.empty((len(FEATURES), 0)), *(found for _, found in seen)], axis=1)
    if not len(keys):
        raise InputError(
            f"no particle above {pt_min:g} GeV has three hits in a row to learn a module map from: "
            f"choose more events, or a lower --pt-min"
        )
    order, start = grouped(keys)
    counts = np.diff(start, append=len(order))
    modules, row = numbered(keys[order[start]].reshape(-1, 3))
    spread = _spread_on_layers(keys, values)[:, order[start]]
    bounds = _bounds(values[:, order], start, counts, spread)
    return ModuleMap(made, modules, row.reshape(-1, 3), counts, bounds)


def _seen(event: Event, pt_min: float, min_hits: int) -> tuple[Ints, Floats]:
    """Returns volume, layer and module of each hit [K, 9] and the features [F, K] of the triplets
    of hits that target particles have in an event.
    """
    pairs = true_pairs(event)
    pairs = pairs[:, teaches(event, pt_min, min_hits)[pairs[0]]]
    triplets = chained(pairs)
    places = hit_places(event.hits)
    ends = (doublet_features(places, triplets[:2]), doublet_features(places, triplets[1:]))
    values = np.concatenate([*ends, changes(places, triplets)])
    known = np.isfinite(values).all(axis=0)
    keys = module_ids(event.hits)[triplets[:, known]]
    return keys.transpose(1, 0, 2).reshape(-1, 9), values[:, known]


def chained(pairs: Ints) -> Ints:
    """Joins pairs [2, P] of hits, each to all that begin where it ends: [3, K]."""
    pairs = pairs[:, np.argsort(pairs[0], kind="stable")]
    first, last = (np.searchsorted(pairs[0], pairs[1], side=side) for side in ("left", "right"))
    one, other = expand(np.arange(pairs.shape[1]), first, last, np.arange(pairs.shape[1]))
    return np.concatenate([pairs[:, one], pairs[1:, other]])


def _spread_on_layers(keys: Ints, values: Floats) -> Floats:
    """Returns the spread of each feature on the three layers of each triplet seen: [F, K]."""
    _, group = numbered(keys[:, [0, 1, 3, 4, 6, 7]])
    counts = np.bincount(group)
    start = np.cumsum(counts) - counts
    low, high = (start + np.round(share * (counts - 1)).astype(np.int64) for share in QUANTILES)
    ordered = [feature[np.lexsort((feature, group))] for feature in values]
    spreads = np.stack([(feature[high] - feature[low]) / 2 for feature in ordered])
    return spreads[:, group]


def _bounds(values: Floats, start: Ints, counts: Ints, spread: Floats) -> dict[MapWindows, Bounds]:
    """Makes the windows of triplets whose `values` [F, K] begin at `start` [T]; spread [F, T]."""
    lowest, highest = (end.reduceat(values, start, axis=1) for end in (np.minimum, np.maximum))
    # The next of n values lies beyond all before in 2 of n + 1 cases.
    margin = SIGMAS * spread / counts
    mean = np.add.reduceat(values, start, axis=1) / counts
    squared = (values - np.repeat(mean, counts, axis=1)) ** 2
    variance = np.add.reduceat(squared, start, axis=1) / counts
    # Of n values neither the mean nor the variance is known better than to 1 / n of the spread's.
    reach = SIGMAS * np.sqrt(variance + 2 * spread**2 / counts)
    return {
        MapWindows.MINMAX: Bounds(lowest - margin, highest + margin),
        MapWindows.SIGMA: Bounds(mean - reach, mean + reach),
    }
