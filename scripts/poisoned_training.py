"""bigtrk/train.py, but one rank reads NaN: BIGTRK_POISON is its number, and at which event."""

import os

from bigtrk import train
from bigtrk.graphs.sector import Sector
from bigtrk.training.event_source import EventSource

healthy, left = EventSource.read, int(os.environ["BIGTRK_POISON"].split(":")[1])


def poisoned(source: EventSource, part: int, parts: int) -> Sector:
    """What `source` holds; the event due with NaN."""
    global left
    left -= 1
    sector = healthy(source, part, parts)
    if left == 0:
        sector.edge_features.fill_(float("nan"))
    return sector


if os.environ["RANK"] == os.environ["BIGTRK_POISON"].split(":")[0]:
    EventSource.read = poisoned  # type: ignore[method-assign]
train.main()
