"""Stage 2: graphs of events, by whichever builder was asked for."""

from pathlib import Path
from typing import Any

from bigtrk.errors import InputError
from bigtrk.graphs.builders.build_folder import build_with
from bigtrk.graphs.builders.radius import RadiusBuilder
from bigtrk.pipeline.embedding import load_embedding, radius_for

EFFICIENCY = 0.99  # of target edges, unless a radius or another share is asked for


def build_radius_graphs(
    events: Path,
    out: Path,
    run: Path,
    radius: float | None,
    efficiency: float | None,
    names: list[str] | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """Builds the radius graph of each event of `events` in folder `out`; returns the manifest.

    run: that of the embedding. names, prefix: as of `build_with`. The radius is given, or
    else the one that keeps a share `efficiency` of the target edges of the run's validation events,
    by default 0.99.

    Raises:
        InputError: bad input, or an event would have too many edges; graphs built before stay.
    """
    if radius is not None and efficiency is not None:
        raise InputError("give --radius or --efficiency, not both")
    if radius == 0:
        raise InputError("--radius 0 joins no hits; give a larger one, or --efficiency")
    embedding = load_embedding(run)
    if radius is None:
        radius = radius_for(run, EFFICIENCY if efficiency is None else efficiency)
    builder = RadiusBuilder(embedding, embedding.digest, radius)
    return build_with(events, out, builder, names, prefix)
