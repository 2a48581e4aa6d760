"""Graph builders: each chooses the doublets of an event that are a graph's edges."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bigtrk.events.event import Event
from bigtrk.events.truth import overlap_edges, true_edges
from bigtrk.graphs.builders.assembly import event_graph, quality
from bigtrk.graphs.builders.doublets import build_doublets
from bigtrk.graphs.builders.windows import Windows
from bigtrk.graphs.coordinates import Ints
from bigtrk.graphs.event_graph import EventGraph


class GraphBuilder(Protocol):
    """A way to choose doublets. parameters: what decides them, for records."""

    @property
    def parameters(self) -> dict[str, Any]: ...

    def doublets(self, event: Event) -> Ints:
        """Gives pairs of hit rows, inner then outer: [2, E]."""

    def true(self, event: Event) -> Ints:
        """Gives the pairs that are to be found [2, T], of an event with truth."""


@dataclass(frozen=True)
class WindowBuilder:
    """Takes doublets that pass windows, from layer to layer."""

    windows: Windows

    @property
    def parameters(self) -> dict[str, Any]:
        return {"windows": self.windows.digest()}

    def doublets(self, event: Event) -> Ints:
        return build_doublets(event.hits, self.windows)

    def true(self, event: Event) -> Ints:
        return true_edges(event)


@dataclass(frozen=True)
class TrueEdgeBuilder:
    """Takes the true edges alone, also within a layer: what an embedding is trained on."""

    @property
    def parameters(self) -> dict[str, Any]:
        return {"edges": "true"}

    def doublets(self, event: Event) -> Ints:
        return self.true(event)

    def true(self, event: Event) -> Ints:
        return np.concatenate([true_edges(event), overlap_edges(event)], axis=1)


def build_graph(event: Event, builder: GraphBuilder) -> EventGraph:
    """Builds an event's graph; without truth if the event has none."""
    return build_with_record(event, builder)[0]


def build_with_record(event: Event, builder: GraphBuilder) -> tuple[EventGraph, dict[str, Any]]:
    """Builds an event's graph, and returns with it counts, quality and the builder's parameters."""
    # True edges ask for a sort of all hits: once for the graph and its record.
    true = None if event.truth is None else builder.true(event)
    graph = event_graph(event, builder.doublets(event), true)
    return graph, {**quality(event, graph, true), **builder.parameters}
