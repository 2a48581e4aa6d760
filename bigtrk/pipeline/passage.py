"""An event's way through the stages from hits to tracks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bigtrk.tracing import traced


@dataclass
class Passage:
    """Records an event's way through the stages: seconds of each, edges left after it, and notes
    for the user.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    edges: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time of what is done within it; a watchdog knows the stage, too."""
        start = time.perf_counter()
        with traced(name):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
