"""A module map learnt from truth, and graphs built by it.

It learns the triplets of modules that particles pass, and their windows. Most triplets are seen
once or twice, which shows little of their spread. So each window is widened by the spread of the
feature on all triplets of the same three layers, the less the oftener it was seen. Triplets of hits
that pass a map are searched for by joins over pairs of modules.

Shapes: N hits, P pairs of modules, D doublets of hits, K triplets of hits seen, T different
triplets of modules, F features.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bigtrk.console import say
from bigtrk.errors import InputError
from bigtrk.events.event import Columns, Event
from bigtrk.events.truth import module_ids
from bigtrk.graphs.builders.module_map import (
    CHANGE,
    FEATURES,
    FIRST,
    SECOND,
    Bounds,
    ModuleMap,
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
# Half of what lies between is a standard deviation of a normal distribution, and few outliers,
# scattered particles among them, do not widen it.
QUANTILES = (0.1587, 0.8413)


def learn_module_map(
    events: Iterable[Event], made: str, pt_min: float = 1.0, min_hits: int = 3
) -> ModuleMap:
    """Learns the triplets of modules that three consecutive hits of a target particle lie on, also
    where modules of a layer overlap. Target particles have pT > `pt_min` GeV and >= `min_hits`
    hits. Triplets of hits without a slope (dr = 0) teach nothing.

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
    lowest, highest = (
        end.reduceat(values[:, order], start, axis=1) for end in (np.minimum, np.maximum)
    )
    # The next of n values lies beyond all before in 2 of n + 1 cases.
    margin = SIGMAS * _spread_on_layers(keys, values)[:, order[start]] / counts
    bounds = Bounds(lowest - margin, highest + margin)
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


@dataclass(frozen=True)
class Candidates:
    """Doublets of an event that are in the windows of some triplet: pair of modules [D] (ascending,
    then by inner hit), hits [2, D] and features [4, D]; places: of all the event's hits.
    """

    pair: Ints
    hits: Ints
    features: Floats
    places: dict[str, Floats]


@dataclass(frozen=True)
class TripletSearch:
    """A module map made ready: its triplets ordered by first pair.

    pairs [P, 2]: rows of `modules` that are one of a triplet's pairs; pair_bounds [4, P]: as wide
    as the widest of all its triplets'. second [T]: the second pair of each triplet; start [P + 1]:
    the first triplet of each first pair; the windows of its first and second pair of hits [4, T],
    and of the change between them [2, T].
    """

    modules: Ints
    pairs: Ints
    pair_bounds: Bounds
    second: Ints
    start: Ints
    of_first: Bounds
    of_second: Bounds
    of_change: Bounds

    def doublets(self, hits: Columns) -> Ints:
        """Finds the doublets of `hits` [N] that are in a triplet that passes: [2, E] rows of hits,
        the inner one first.
        """
        found = self._candidates(hits)
        used = np.zeros(len(found.pair), dtype=bool)
        n_hits = len(hits["x"])
        keys = found.pair * n_hits + found.hits[0]
        for first, triplet in self._triplets(found):
            # The second doublets are of the triplet's second pair and begin where the first ends.
            wanted = self.second[triplet] * n_hits + found.hits[1, first]
            begin, end = (np.searchsorted(keys, wanted, side=side) for side in ("left", "right"))
            for part in chunks(end - begin):
                rows = np.arange(len(first))[part]
                row, second = expand(rows, begin[part], end[part], np.arange(len(used)))
                passed = self._pass(found, triplet[row], first[row], second)
                used[first[row[passed]]] = used[second[passed]] = True
        return found.hits[:, used]

    def _candidates(self, hits: Columns) -> Candidates:
        """Finds the outward doublets within the windows of any triplet."""
        places, place = hit_places(hits), distance_order(hits)
        module = rows_of(module_ids(hits), self.modules)
        order = np.argsort(module, kind="stable")
        begin = np.searchsorted(module[order], np.arange(len(self.modules) + 1))
        inside, outside = self.pairs.T
        pair, inner = expand(np.arange(len(inside)), begin[inside], begin[inside + 1], order)
        first, last = begin[outside[pair]], begin[outside[pair] + 1]
        found = [(np.empty(0, np.int64), np.empty((2, 0), np.int64))]
        for part in chunks(last - first):
            row, outer = expand(np.arange(len(pair))[part], first[part], last[part], order)
            doublets = np.stack([inner[row], outer])
            passed = place[doublets[0]] < place[doublets[1]]
            passed &= self.pair_bounds.hold(doublet_features(places, doublets), pair[row])
            found.append((pair[row[passed]], doublets[:, passed]))
        pairs, parts = zip(*found, strict=True)
        doublets = np.concatenate(parts, axis=1)
        return Candidates(
            np.concatenate(pairs), doublets, doublet_features(places, doublets), places
        )

    def _triplets(self, found: Candidates) -> Iterator[tuple[Ints, Ints]]:
        """Yields doublets, and triplets whose first windows they pass, chunk by chunk."""
        first, last = self.start[found.pair], self.start[found.pair + 1]
        for part in chunks(last - first):
            rows = np.arange(len(found.pair))[part]
            one, triplet = expand(rows, first[part], last[part], np.arange(len(self.second)))
            passed = self.of_first.hold(found.features[:, one], triplet)
            yield one[passed], triplet[passed]

    def _pass(self, found: Candidates, triplet: Ints, first: Ints, second: Ints) -> Ints:
        """Returns the rows of `triplet` whose windows `second` doublets, and the change to them
        from the `first`, pass.
        """
        passed = np.flatnonzero(self.of_second.hold(found.features[:, second], triplet))
        hits = np.stack([*found.hits[:, first[passed]], found.hits[1, second[passed]]])
        change = changes(found.places, hits)
        return passed[self.of_change.hold(change, triplet[passed])]


def make_search(module_map: ModuleMap) -> TripletSearch:
    """Makes the search by a map's windows."""
    bounds, triplets = module_map.bounds, module_map.triplets
    pairs, number = numbered(np.concatenate([triplets[:, :2], triplets[:, 1:]]))
    first, second = np.split(number, 2)
    by_pair, start = grouped(number[:, None])
    lower, upper = (
        np.concatenate([side[FIRST], side[SECOND]], axis=1)[:, by_pair]
        for side in (bounds.lower, bounds.upper)
    )
    order = np.argsort(first, kind="stable")
    of_first, of_second, of_change = (
        Bounds(bounds.lower[rows][:, order], bounds.upper[rows][:, order])
        for rows in (FIRST, SECOND, CHANGE)
    )
    return TripletSearch(
        modules=module_map.modules,
        pairs=pairs,
        pair_bounds=Bounds(
            np.minimum.reduceat(lower, start, axis=1), np.maximum.reduceat(upper, start, axis=1)
        ),
        second=second[order],
        start=np.searchsorted(first[order], np.arange(len(pairs) + 1)),
        of_first=of_first,
        of_second=of_second,
        of_change=of_change,
    )


# A few modules are missing in every map; with as many hits, the map is too small or another's.
MANY = 0.1


@dataclass(frozen=True)
class ModuleMapBuilder:
    """Takes doublets that are part of a triplet of hits that passes a module map."""

    module_map: ModuleMap

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return {"module_map": self.module_map.digest()}

    def doublets(self, event: Event) -> Ints:
        """Gives pairs of hit rows, ordered outwards: [2, E]; says so where many hits have none."""
        unknown = rows_of(module_ids(event.hits), self.module_map.modules) < 0
        if unknown.any() and unknown.mean() > MANY:
            say(
                f"{event.name}: {np.count_nonzero(unknown):,} of {len(unknown):,} hits are on "
                f"modules that the module map does not know, and get no edges; learn it from more "
                f"events of this detector"
            )
        return self._search.doublets(event.hits)

    def true(self, event: Event) -> Ints:
        """Gives the pairs that are to be found [2, T], also those of a layer."""
        return true_pairs(event)

    @cached_property
    def _search(self) -> TripletSearch:
        return make_search(self.module_map)
