"""Many simulated events, written as TrackML files."""

from collections.abc import Sequence
from pathlib import Path

from bigtrk.console import follow
from bigtrk.events.detectors import layers_from_detectors, write_detectors
from bigtrk.events.geometry import TRACKML_LAYERS
from bigtrk.events.reader import read_detectors
from bigtrk.events.simulate import simulate_event
from bigtrk.events.writer import write_event


def simulate_folder(
    out: Path, events: Sequence[int], particles: int, seed: int, detectors: Path | None
) -> None:
    """Write the numbered `events` of `particles` particles each, and detectors.csv.gz, to `out`.

    `detectors` names a detectors.csv; without it the built-in TrackML-like geometry is used.
    """
    layers = layers_from_detectors(read_detectors(detectors)) if detectors else TRACKML_LAYERS
    for event_id in follow(events, len(events), "simulate"):
        write_event(simulate_event(particles, seed, event_id, layers), out)
    write_detectors(out, layers)
