"""Simulates many events and writes them as TrackML files or a ColliderML sample."""

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path

from bigtrk import __version__
from bigtrk.console import follow
from bigtrk.disk.files import claim_folder
from bigtrk.errors import InputError
from bigtrk.events.colliderml_writer import write_sample
from bigtrk.events.detectors import find_layers, write_detectors
from bigtrk.events.event import Event, EventFormat, event_name
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.trackml import write_event

RECORD = "simulation.json"  # next to the events: what they were simulated with


def simulate_folder(
    out: Path,
    events: Sequence[int],
    particles: int,
    seed: int,
    detectors: str | Path | None,
    with_truth: bool = True,
    file_format: EventFormat = EventFormat.TRACKML,
) -> None:
    """Simulates the numbered `events` with `particles` particles each; writes them to `out`.

    It also writes detectors.csv.gz there. `detectors` is a detectors.csv, or the name of a built-in
    detector: `trackml`, the default, or `odd`. Hits and cells are the same with and without truth.
    ColliderML's files have no cells. Events that `out` already holds from the same simulation are
    kept. Raises InputError if `out` holds something else, or `detectors` is bad; or, before
    anything is written, if there are no events or particles.
    """
    if not events:
        raise InputError("cannot simulate 0 events: ask for 1 or more")
    if particles < 1 or seed < 0 or min(events) < 0:
        raise InputError(
            f"cannot simulate {particles} particles with seed {seed} as event {min(events)}: give "
            f"at least 1 particle and no negative numbers"
        )
    layers = find_layers(detectors or "trackml")
    sha = hashlib.sha256(b"".join(column.tobytes() for column in astuple(layers)))
    parameters = {
        "bigtrk": __version__,
        "particles": particles,
        "seed": seed,
        "detectors": sha.hexdigest()[:12],
    }
    if not with_truth:
        parameters["truth"] = False
    if file_format is not EventFormat.TRACKML:
        parameters["format"] = file_format.value
    claim_folder(
        out, RECORD, parameters, "--particles, --seed, --detectors, --format and --no-truth"
    )
    write_detectors(out, layers)

    def make(event_id: int) -> Event:
        event = simulate_event(particles, seed, event_id, layers)
        return event if with_truth else replace(event, particles=None, truth=None)

    if file_format is EventFormat.COLLIDERML:
        write_sample(out, events, layers, make)
        return
    for event_id in follow(events, len(events), "simulate"):
        # Hits are written last.
        if not (out / f"{event_name(event_id)}-hits.csv.gz").exists():
            write_event(make(event_id), out)
