"""An event's way through the stages from hits to tracks.

Shapes: E edges that a stage leaves.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracing import traced

# Is shown a stage's name, the edges that it leaves [2, E], and their scores [E] if it gives some.
Watch = Callable[[str, NDArray[np.int64], NDArray[np.floating] | None], None]


def unwatched(*_: object) -> None:
    """Watches nothing (Watch)."""


@dataclass
class Passage:
    """Records an event's way through the stages: seconds of each, edges left after it, and notes
    for the user. What stages leave is shown to `watch`.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    edges: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    watch: Watch = unwatched

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time of what is done within it; a watchdog knows the stage, too."""
        start = time.perf_counter()
        with traced(name):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
