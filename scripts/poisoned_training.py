"""bigtrk/train.py, but the rank whose number the file BIGTRK_POISON holds reads NaN."""

import os
from pathlib import Path

from bigtrk import train
from bigtrk.graphs.sector import Sector
from bigtrk.training.event_source import EventSource

healthy, poison = EventSource.read, Path(os.environ["BIGTRK_POISON"])


def poisoned(self: EventSource, part: int, parts: int) -> Sector:
    """What the source holds; with NaN from when the file is there."""
    sector = healthy(self, part, parts)
    if poison.exists() and poison.read_text() == os.environ["RANK"]:
        sector.edge_features.fill_(float("nan"))
    return sector


EventSource.read = poisoned  # type: ignore[method-assign]
train.main()
