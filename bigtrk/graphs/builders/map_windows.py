"""The windows of a module map by name, which the command line reads without torch."""

from enum import StrEnum


class MapWindows(StrEnum):
    """The windows of a triplet: around all that was seen, or mean -+ 3 standard deviations."""

    MINMAX = "minmax"
    SIGMA = "sigma"
