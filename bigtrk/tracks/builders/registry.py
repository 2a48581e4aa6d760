"""The choice of a track builder."""

from collections.abc import Callable
from typing import Protocol

from bigtrk.tracks.builders.builder import TrackBuilder
from bigtrk.tracks.builders.components import Components
from bigtrk.tracks.builders.fast_walk import FastWalk
from bigtrk.tracks.builders.junction_removal import JunctionRemoval
from bigtrk.tracks.builders.names import BuilderName
from bigtrk.tracks.builders.walk import Walk


class CutBuilder(TrackBuilder, Protocol):
    """A track builder that reads only edges with a score above `score_cut`."""

    @property
    def score_cut(self) -> float: ...


BUILDERS: dict[BuilderName, Callable[..., CutBuilder]] = {
    BuilderName.COMPONENTS: Components,
    BuilderName.JUNCTION_REMOVAL: JunctionRemoval,
    BuilderName.WALK: Walk,
    BuilderName.FAST_WALK: FastWalk,
}


def make_builder(name: BuilderName, score_cut: float | None = None) -> CutBuilder:
    """Makes the builder `name`, with a score cut of its own where none is given."""
    builder = BUILDERS[name]
    return builder() if score_cut is None else builder(score_cut=score_cut)
