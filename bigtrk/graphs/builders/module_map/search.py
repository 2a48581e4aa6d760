"""The search for triplets of hits that pass a module map, by joins over pairs of modules.

Shapes: N hits, P pairs of modules, T triplets of modules, D doublets of hits.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

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
class Candidates:
    """Doublets of an event that are in the windows of some triplet: pair of modules [D] (ascending,
    then by inner hit), hits [2, D] and features [4, D]; places: of all the event's hits.
    """

    pair: Ints
    hits: Ints
    features: Floats
    places: dict[str, Floats]

    def starting_at(self, pair: Ints, hit: Ints) -> tuple[Ints, Ints]:
        """Returns the ranges of the doublets of each `pair` [K] with inner `hit` [K]."""
        n_hits = len(self.places["x"])
        key, wanted = self.pair * n_hits + self.hits[0], pair * n_hits + hit
        return np.searchsorted(key, wanted), np.searchsorted(key, wanted, side="right")


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
        found = self._candidates(hits)
        used = np.zeros(len(found.pair), dtype=bool)
        for first, triplet in self._triplets(found):
            begin, end = found.starting_at(self.second[triplet], found.hits[1, first])
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
        inside, outside = self.pairs.modules.T
        pair, inner = expand(np.arange(len(inside)), begin[inside], begin[inside + 1], order)
        first, last = begin[outside[pair]], begin[outside[pair] + 1]
        found = [(np.empty(0, np.int64), np.empty((2, 0), np.int64))]
        for part in chunks(last - first):
            row, outer = expand(np.arange(len(pair))[part], first[part], last[part], order)
            doublets = np.stack([inner[row], outer])
            passed = place[doublets[0]] < place[doublets[1]]
            passed &= self.pairs.bounds.hold(doublet_features(places, doublets), pair[row])
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
            passed = self.bounds.at(FIRST).hold(found.features[:, one], triplet)
            yield one[passed], triplet[passed]

    def _pass(self, found: Candidates, triplet: Ints, first: Ints, second: Ints) -> Ints:
        """Returns the rows of `triplet` whose windows `second` doublets, and the change to them
        from the `first`, pass.
        """
        fine = self.bounds.at(SECOND).hold(found.features[:, second], triplet)
        passed = np.flatnonzero(fine)
        hits = np.stack([*found.hits[:, first[passed]], found.hits[1, second[passed]]])
        change = changes(found.places, hits)
        return passed[self.bounds.at(CHANGE).hold(change, triplet[passed])]


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
