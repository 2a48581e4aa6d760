"""The public tracking tasks by name."""

from enum import StrEnum


class Task(StrEnum):
    """A task of a public arena, by whose metrics `bigtrk score` judges, too."""

    COLLIDERML = "colliderml"
