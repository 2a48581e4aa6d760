"""The track builders by name."""

from enum import StrEnum


class BuilderName(StrEnum):
    """A track builder, as commands and records name it."""

    COMPONENTS = "components"
    JUNCTION_REMOVAL = "junction_removal"
    WALK = "walk"
    FAST_WALK = "fast_walk"
