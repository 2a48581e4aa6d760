"""The names by which commands choose track builders and ways to score tracks."""

from enum import StrEnum
from typing import Literal

Task = Literal["colliderml"]  # public tasks whose metrics `bigtrk score` can add
Rules = Literal["all"]  # rules of published figures that it can add


class BuilderName(StrEnum):
    """The track builders, by the names that commands and records use."""

    COMPONENTS = "components"
    JUNCTION_REMOVAL = "junction_removal"
    WALK = "walk"
    FAST_WALK = "fast_walk"
