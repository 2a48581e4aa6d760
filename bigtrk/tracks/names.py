"""The names by which commands choose track builders and ways to score tracks."""

from enum import StrEnum
from typing import Literal

Task = Literal["colliderml"]  # of a public arena, by whose metrics `bigtrk score` judges, too
Rules = Literal["all"]  # of published figures, by which it judges, too


class BuilderName(StrEnum):
    """The track builders, by the names that commands and records use."""

    COMPONENTS = "components"
    JUNCTION_REMOVAL = "junction_removal"
    WALK = "walk"
    FAST_WALK = "fast_walk"
