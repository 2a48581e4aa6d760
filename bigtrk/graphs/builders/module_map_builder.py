"""Learns a module map from truth, and builds graphs by a module map.

A map holds the triplets of modules that particles cross, and their windows. Most triplets are seen
once or twice, which shows little of their spread. So each window is widened by the feature's spread
over all triplets on the same three layers, and less if the triplet was seen often. Triplets of hits
that pass a map are found by joins over pairs of modules.

Shapes: N hits, D doublets of hits, K triplets of hits seen, T different triplets of modules, F
features.
"""

from collections.abc import Iterable

import numpy as np

from bigtrk.console import say
from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.truth import module_ids
from bigtrk.graphs.builders.module_map import (
    CHANGE,
    FEATURES,
    FIRST,
    SECOND,
    ModuleMap,
    are_within,
    changes,
    doublet_features,
    grouped,
    hit_places,
    numbered,
    rows_of,
)
from bigtrk.graphs.builders.radius import distance_order, true_pairs
from bigtrk.graphs.builders.window_learning import teaches
from bigtrk.graphs.builders.windows import chunks, expand
from bigtrk.graphs.features import Floats, Ints

SIGMAS = 3.0
# Half of the distance between these quantiles is a normal distribution's standard deviation; a
# few outliers, such as scattered particles, do not widen it.
QUANTILES = (0.1587, 0.8413)


def learn_module_map(events: Iterable[Event], made: str, pt_min: float = 1.0) -> ModuleMap:
    """Learns the triplets of modules on which target particles left three consecutive hits, also
    where modules of a layer overlap. Target particles have pT > `pt_min` GeV and >= TARGET_HITS
    hits. Hits without a slope (dr = 0) are left out.
    """
    seen = [_seen(event, pt_min) for event in events]
    keys = np.concatenate([np.empty((0, 9), dtype=np.int64), *(keys for keys, _ in seen)])
    values = np.concatenate([np.empty((len(FEATURES), 0)), *(found for _, found in seen)], axis=1)
    if not len(keys):
        raise InputError(
            f"no particle with pT above {pt_min:g} GeV has three successive hits to learn a module "
            f"map from; use more events, or a lower --pt-min"
        )
    order, start = grouped(keys)
    counts = np.diff(start, append=len(order))
    modules, row = numbered(keys[order[start]].reshape(-1, 3))
    lowest, highest = (
        end.reduceat(values[:, order], start, axis=1) for end in (np.minimum, np.maximum)
    )
    # After n values the next one lies outside their range with the chance 2 / (n + 1).
    margin = SIGMAS * _spread_on_layers(keys, values)[:, order[start]] / counts
    bounds = np.stack([lowest - margin, highest + margin])
    return ModuleMap(made, modules, row.reshape(-1, 3), counts, bounds)


def _seen(event: Event, pt_min: float) -> tuple[Ints, Floats]:
    """Returns each hit triplet of target particles: modules [K, 9] and features [F, K]."""
    pairs = true_pairs(event)
    pairs = pairs[:, teaches(event, pt_min)[pairs[0]]]
    triplets = chained(pairs)
    places = hit_places(event.hits)
    ends = (doublet_features(places, triplets[:2]), doublet_features(places, triplets[1:]))
    values = np.concatenate([*ends, changes(places, triplets)])
    known = np.isfinite(values).all(axis=0)
    keys = module_ids(event.hits)[triplets[:, known]]
    return keys.transpose(1, 0, 2).reshape(-1, 9), values[:, known]


def chained(pairs: Ints) -> Ints:
    """Joins hit pairs [2, P] to triplets [3, K]: each with every pair that starts where it ends."""
    pairs = pairs[:, np.argsort(pairs[0], kind="stable")]
    first, last = (np.searchsorted(pairs[0], pairs[1], side=side) for side in ("left", "right"))
    one, other = expand(np.arange(pairs.shape[1]), first, last, np.arange(pairs.shape[1]))
    return np.concatenate([pairs[:, one], pairs[1:, other]])


def _spread_on_layers(keys: Ints, values: Floats) -> Floats:
    """Returns each feature's spread over all triplets on the same three layers: [F, K]."""
    _, group = numbered(keys[:, [0, 1, 3, 4, 6, 7]])
    counts = np.bincount(group)
    start = np.cumsum(counts) - counts
    low, high = (start + np.round(share * (counts - 1)).astype(np.int64) for share in QUANTILES)
    ordered = [feature[np.lexsort((feature, group))] for feature in values]
    spreads = np.stack([(feature[high] - feature[low]) / 2 for feature in ordered])
    return spreads[:, group]


# Every map lacks a few modules; if this share of hits lies on unknown ones, the map does not fit.
MANY = 0.1


class ModuleMapBuilder:
    """Selects doublets that belong to a triplet of hits that passes a module map."""

    def __init__(self, module_map: ModuleMap) -> None:
        self.module_map = module_map
        self.parameters = {"module_map": module_map.digest()}
        triplets, bounds = module_map.triplets, module_map.bounds
        # All different pairs of modules, and for each triplet the indices of its two pairs.
        self._pairs, number = numbered(np.concatenate([triplets[:, :2], triplets[:, 1:]]))
        first, second = np.split(number, 2)
        # Triplets are taken in order of their first pair.
        order = np.argsort(first, kind="stable")
        self._second = second[order]
        self._start = np.searchsorted(first[order], np.arange(len(self._pairs) + 1))
        self._bounds = bounds[..., order]
        # The windows of a pair are as wide as the widest of its triplets.
        order, start = grouped(number[:, None])
        lower, upper = np.concatenate([bounds[:, FIRST], bounds[:, SECOND]], axis=2)[..., order]
        ends = np.minimum.reduceat(lower, start, axis=1), np.maximum.reduceat(upper, start, axis=1)
        self._pair_bounds = np.stack(ends)

    def true(self, event: Event) -> Ints:
        """Returns the true edges [2, T], also those within a layer."""
        return true_pairs(event)

    def doublets(self, event: Event) -> Ints:
        """Returns doublets directed outwards: [2, E]; warns of many hits on unknown modules."""
        places, n_hits = hit_places(event.hits), len(event.hits["x"])
        pair, doublets = self._candidates(event, places)
        features = doublet_features(places, doublets)
        used = np.zeros(len(pair), dtype=bool)
        key = pair * n_hits + doublets[0]
        begin, end = self._start[pair], self._start[pair + 1]
        for part in chunks(end - begin):
            rows = np.arange(len(pair))[part]
            one, triplet = expand(rows, begin[part], end[part], np.arange(len(self._second)))
            passed = are_within(self._bounds[:, FIRST], features[:, one], triplet)
            one, triplet = one[passed], triplet[passed]
            # A second doublet has the triplet's second module pair and starts where the first ends.
            wanted = self._second[triplet] * n_hits + doublets[1, one]
            first, last = (np.searchsorted(key, wanted, side=side) for side in ("left", "right"))
            for some in chunks(last - first):
                rows = np.arange(len(one))[some]
                row, other = expand(rows, first[some], last[some], np.arange(len(used)))
                passed = are_within(self._bounds[:, SECOND], features[:, other], triplet[row])
                row, other = row[passed], other[passed]
                hits = np.stack([*doublets[:, one[row]], doublets[1, other]])
                change = changes(places, hits)
                passed = are_within(self._bounds[:, CHANGE], change, triplet[row])
                used[one[row[passed]]] = used[other[passed]] = True
        return doublets[:, used]

    def _candidates(self, event: Event, places: dict[str, Floats]) -> tuple[Ints, Ints]:
        """Finds outward doublets in windows of module pairs: the pair [D], sorted; hits [2, D]."""
        modules, place = self.module_map.modules, distance_order(event.hits)
        module = rows_of(module_ids(event.hits), modules)
        unknown = np.count_nonzero(module < 0)
        if unknown > MANY * len(module):
            say(
                f"{event.name}: {unknown:,} of {len(module):,} hits are on modules that the module "
                f"map does not know, and get no edges; learn a map from more events of the detector"
            )
        order = np.argsort(module, kind="stable")
        begin = np.searchsorted(module[order], np.arange(len(modules) + 1))
        inside, outside = self._pairs.T
        pair, inner = expand(np.arange(len(inside)), begin[inside], begin[inside + 1], order)
        first, last = begin[outside[pair]], begin[outside[pair] + 1]
        found = [(np.empty(0, np.int64), np.empty((2, 0), np.int64))]
        for part in chunks(last - first):
            row, outer = expand(np.arange(len(pair))[part], first[part], last[part], order)
            doublets = np.stack([inner[row], outer])
            passed = place[doublets[0]] < place[doublets[1]]
            features = doublet_features(places, doublets)
            passed &= are_within(self._pair_bounds, features, pair[row])
            found.append((pair[row[passed]], doublets[:, passed]))
        pairs, parts = zip(*found, strict=True)
        return np.concatenate(pairs), np.concatenate(parts, axis=1)
