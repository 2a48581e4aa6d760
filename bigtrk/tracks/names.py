"""Names that commands choose by: of track builders, and of ways to score tracks."""

from enum import StrEnum
from typing import Literal

Task = Literal["colliderml"]  # of a public arena, by whose metrics `bigtrk score` judges, too
Rules = Literal["all"]  # of published figures, by which it judges, too


class BuilderName(StrEnum):
    """A track builder, as commands and records name it."""

    COMPONENTS = "components"
    JUNCTION_REMOVAL = "junction_removal"
    WALK = "walk"
    FAST_WALK = "fast_walk"
