"""Names that commands choose by: of track builders, and of public tasks."""

from enum import StrEnum


class BuilderName(StrEnum):
    """A track builder, as commands and records name it."""

    COMPONENTS = "components"
    JUNCTION_REMOVAL = "junction_removal"
    WALK = "walk"
    FAST_WALK = "fast_walk"


class Task(StrEnum):
    """A task of a public arena, by whose metrics `bigtrk score` judges, too."""

    COLLIDERML = "colliderml"


class Rules(StrEnum):
    """The rules of published figures by which `bigtrk score` judges, too."""

    ALL = "all"
