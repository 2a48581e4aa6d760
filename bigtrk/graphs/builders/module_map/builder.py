"""The graph builder of a module map."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bigtrk.console import say
from bigtrk.events.event import Event
from bigtrk.events.truth import module_ids
from bigtrk.graphs.builders.module_map.groups import rows_of
from bigtrk.graphs.builders.module_map.module_map import ModuleMap
from bigtrk.graphs.builders.module_map.names import MapWindows
from bigtrk.graphs.builders.module_map.search import TripletSearch, make_search
from bigtrk.graphs.builders.radius import true_pairs
from bigtrk.graphs.coordinates import Ints

# A few modules are missing in every map; with as many hits, the map is too small or another's.
MANY = 0.1


@dataclass(frozen=True)
class ModuleMapBuilder:
    """Takes doublets that are part of a triplet of hits that passes a module map."""

    module_map: ModuleMap
    windows: MapWindows

    @property
    def parameters(self) -> dict[str, Any]:
        return {"module_map": self._digest, "module_map_windows": self.windows.value}

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
    def _digest(self) -> str:
        return self.module_map.digest()

    @cached_property
    def _search(self) -> TripletSearch:
        return make_search(self.module_map, self.windows)
