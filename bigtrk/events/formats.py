"""The formats that events are written in."""

from enum import StrEnum


class EventFormat(StrEnum):
    """A format of files of events."""

    TRACKML = "trackml"
    COLLIDERML = "colliderml"
