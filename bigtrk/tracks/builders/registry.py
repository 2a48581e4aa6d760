"""The choice of a track builder."""

from typing import Protocol

from bigtrk.tracks.builders.builder import TrackBuilder
from bigtrk.tracks.builders.components import Components
from bigtrk.tracks.builders.junction_removal import JunctionRemoval
from bigtrk.tracks.builders.names import BuilderName


class CutBuilder(TrackBuilder, Protocol):
    """A track builder that reads only edges with a score above `score_cut`."""

    @property
    def score_cut(self) -> float: ...


BUILDERS: dict[BuilderName, type[Components | JunctionRemoval]] = {
    BuilderName.COMPONENTS: Components,
    BuilderName.JUNCTION_REMOVAL: JunctionRemoval,
}


def make_builder(name: BuilderName, score_cut: float | None = None) -> CutBuilder:
    """Makes the builder `name`, with a score cut of its own where none is given."""
    builder = BUILDERS[name]
    return builder() if score_cut is None else builder(score_cut=score_cut)
