"""The names of the ways to make a gradient, which the command line knows without torch."""

from enum import StrEnum


class Way(StrEnum):
    """A way to make a gradient, that of a mini-batch or the exact one in other arithmetic."""

    EVENTS = "events"
    SHADOW = "shadow"
    NAIVE = "naive-sectors"
    HALO = "halo-sectors"
    WEDGES = "wedges"
    PRECISION = "precision"
    EXCHANGE = "exchange"

    @property
    def needs_sectors(self) -> bool:
        """Says whether events have to be stored in sectors."""
        return self in (Way.NAIVE, Way.HALO, Way.EXCHANGE)
