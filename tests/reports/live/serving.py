"""The server of a page of runs, in a thread of the test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigtrk.reports.live.server import LiveServer
from bigtrk.reports.live.watch import Watch


@contextmanager
def serving(*runs: Path) -> Iterator[LiveServer]:
    """Serves the page of runs while the block runs."""
    with LiveServer(Watch(runs), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
