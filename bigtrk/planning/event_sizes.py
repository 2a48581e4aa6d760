"""Event sizes to plan for, from folders, as numbers, or from papers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bigtrk.cost.event_size import EventSize
from bigtrk.errors import InputError
from bigtrk.training.data.event_source import open_events

# Standard deviation / mean of the edges of 80 real graphs (HEPTrkX, events 1000 to 1079), whose
# logarithm is nearly normal; for their nodes it is 0.15.
EDGE_SPREAD = 0.22
# Means of Tripathy et al. (Ex3: TrackML above 1 GeV; CTD), and one graph of event 1000.
PAPERS = {
    "ex3": EventSize(13_000, 47_800),
    "ctd": EventSize(330_700, 6_900_000),
    "event1000": EventSize(103_783, 2_984_951),
}


def folder_sizes(folders: Sequence[Path]) -> list[EventSize]:
    """Reads the sizes of all events of folders of graphs or sectors.

    Raises:
        InputError: a folder is not one of these.
    """
    return [source.size for source in open_events(folders)]


def paper_sizes(name: str) -> list[EventSize]:
    """Returns one event of the size that a paper gives.

    Raises:
        InputError: there is no such data set.
    """
    if name not in PAPERS:
        raise InputError(f"--events {name!r}: choose {', '.join(PAPERS)}")
    return [PAPERS[name]]


def draw(sizes: Sequence[EventSize], n: int, seed: int) -> list[EventSize]:
    """Draws `n` events from `sizes`, or around a single one with the spread of real events."""
    generator = np.random.default_rng(seed)
    if len(sizes) > 1:
        return [sizes[i] for i in generator.integers(len(sizes), size=n)]
    sigma = np.sqrt(np.log1p(EDGE_SPREAD**2))
    factors = np.exp(generator.normal(-(sigma**2) / 2, sigma, size=n))
    # Rounding lets events of like size be costed once.
    return [_scaled(sizes[0], float(round(factor, 2))) for factor in factors]


def _scaled(size: EventSize, factor: float) -> EventSize:
    nodes = size.nodes * factor ** (2 / 3)  # 0.15 for 0.22
    return replace(size, nodes=nodes, edges=size.edges * factor)
