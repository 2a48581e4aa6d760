"""The search for triplets of hits that pass a module map, by joins over pairs of modules.

Shapes: N hits, P pairs of modules, T triplets of modules, D doublets of hits.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Columns
from bigtrk.events.truth import module_ids
from bigtrk.graphs.builders.doublets import chunks, expand
from bigtrk.graphs.builders.module_map.features import changes, doublet_features, hit_places
from bigtrk.graphs.builders.module_map.groups import grouped, numbered, rows_of
from bigtrk.graphs.builders.module_map.module_map import (
    CHANGE,
    FIRST,
    SECOND,
    Bounds,
    ModuleMap,
)
from bigtrk.graphs.builders.module_map.names import MapWindows
from bigtrk.graphs.builders.radius import distance_order
from bigtrk.graphs.coordinates import Floats, Ints


@dataclass(frozen=True)
class ModulePairs:
    """The pairs of modules that triplets are made of: modules [P, 2] (rows of the map's), bounds
    [4, P] as wide as the widest of all its triplets'.
    """

    modules: Ints
    bounds: Bounds


@dataclass(frozen=True)
class TripletSearch:
    """A module map made ready: its triplets ordered by first pair.

    second [T]: the second pair of each; start [P + 1]: the first triplet of each first pair.
    """

    modules: Ints
    pairs: ModulePairs
    second: Ints
    start: Ints
    bounds: Bounds

    def doublets(self, hits: Columns) -> Ints:
        """Finds the doublets of `hits` [N] that are in a triplet that passes: [2, E] rows of hits,
        the inner one first.
        """
        places = hit_places(hits)
        pair, doublets = self._candidates(hits, places)
        features = doublet_features(places, doublets)
        # Candidates come ordered by pair of modules, then by inner hit.
        key = pair * len(places["x"]) + doublets[0]
        used = np.zeros(len(pair), dtype=bool)
        for first, triplet in self._triplets(pair, features):
            wanted = self.second[triplet] * len(places["x"]) + doublets[1, first]
            begin, end = (np.searchsorted(key, wanted, side=side) for side in ("left", "right"))
            for part in chunks(end - begin):
                rows = np.arange(len(wanted))[part]
                row, second = expand(rows, begin[part], end[part], np.arange(len(pair)))
                passed = self._pass(triplet[row], first[row], second, doublets, features, places)
                used[first[row[passed]]] = used[second[passed]] = True
        return doublets[:, used]

    def _candidates(self, hits: Columns, places: dict[str, Floats]) -> tuple[Ints, Ints]:
        """Returns pair of modules [D] and hits [2, D] of the outward doublets within the windows of
        any triplet.
        """
        module = rows_of(module_ids(hits), self.modules)
        order = np.argsort(module, kind="stable")
        begin = np.searchsorted(module[order], np.arange(len(self.modules) + 1))
        inside, outside = self.pairs.modules.T
        pair, inner = expand(np.arange(len(inside)), begin[inside], begin[inside + 1], order)
        first, last = begin[outside[pair]], begin[outside[pair] + 1]
        place = distance_order(hits)
        found = [(np.empty(0, np.int64), np.empty((2, 0), np.int64))]
        for part in chunks(last - first):
            row, outer = expand(np.arange(len(pair))[part], first[part], last[part], order)
            doublets = np.stack([inner[row], outer])
            passed = place[doublets[0]] < place[doublets[1]]
            passed &= within(doublet_features(places, doublets), self.pairs.bounds, pair[row])
            found.append((pair[row[passed]], doublets[:, passed]))
        pairs, parts = zip(*found, strict=True)
        return np.concatenate(pairs), np.concatenate(parts, axis=1)

    def _triplets(self, pair: Ints, features: Floats) -> Iterator[tuple[Ints, Ints]]:
        """Yields doublets, and triplets of modules whose first windows they pass, chunk by chunk;
        pair [D] and features [4, D] of all doublets.
        """
        first, last = self.start[pair], self.start[pair + 1]
        for part in chunks(last - first):
            rows = np.arange(len(pair))[part]
            one, triplet = expand(rows, first[part], last[part], np.arange(len(self.second)))
            passed = within(features[:, one], rows_at(self.bounds, FIRST), triplet)
            yield one[passed], triplet[passed]

    def _pass(
        self,
        triplet: Ints,
        first: Ints,
        second: Ints,
        doublets: Ints,
        features: Floats,
        places: dict[str, Floats],
    ) -> Ints:
        """Returns the rows of the triplets of hits, of `first` and `second` doublets, that pass the
        windows of their second doublet and of its change.
        """
        passed = np.flatnonzero(within(features[:, second], rows_at(self.bounds, SECOND), triplet))
        hits = np.stack([*doublets[:, first[passed]], doublets[1, second[passed]]])
        change = within(changes(places, hits), rows_at(self.bounds, CHANGE), triplet[passed])
        return passed[change]


def make_search(module_map: ModuleMap, windows: MapWindows) -> TripletSearch:
    """Makes the search by one kind of the map's windows."""
    bounds, triplets = module_map.bounds[windows], module_map.triplets
    n_triplets = len(triplets)
    pairs, number = numbered(np.concatenate([triplets[:, :2], triplets[:, 1:]]))
    first, second = number[:n_triplets], number[n_triplets:]
    order = np.argsort(first, kind="stable")
    return TripletSearch(
        modules=module_map.modules,
        pairs=ModulePairs(pairs, _widest(bounds, number)),
        second=second[order],
        start=np.searchsorted(first[order], np.arange(len(pairs) + 1)),
        bounds=Bounds(bounds.lower[:, order], bounds.upper[:, order]),
    )


def _widest(bounds: Bounds, number: Ints) -> Bounds:
    """Returns bounds [4, P] of pairs: `number` [2 T] of each triplet's first, then second one."""
    order, start = grouped(number[:, None])
    lower, upper = (
        np.concatenate([side[FIRST], side[SECOND]], axis=1)[:, order]
        for side in (bounds.lower, bounds.upper)
    )
    return Bounds(
        np.minimum.reduceat(lower, start, axis=1), np.maximum.reduceat(upper, start, axis=1)
    )


def within(features: Floats, bounds: Bounds, row: Ints) -> NDArray[np.bool_]:
    """Says which features [F, K] are all within the bounds [F, ...] of their `row` [K]: [K]; never
    where one is NaN.
    """
    passed: NDArray[np.bool_] = np.logical_and.reduce(
        [
            (low[row] <= feature) & (feature <= high[row])
            for feature, low, high in zip(features, bounds.lower, bounds.upper, strict=True)
        ]
    )
    return passed


def rows_at(bounds: Bounds, rows: slice) -> Bounds:
    """Takes some rows of FEATURES of bounds."""
    return Bounds(bounds.lower[rows], bounds.upper[rows])
