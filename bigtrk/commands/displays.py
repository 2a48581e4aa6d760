"""The command of the `bigtrk` program that shows an event."""

from pathlib import Path
from typing import Annotated

import typer

from bigtrk.commands.options import MinHits, PtMin, check_page
from bigtrk.console import say
from bigtrk.errors import InputError
from bigtrk.tracks.names import BuilderName
from bigtrk.user_code import Code, allow_code


def display(
    run: Annotated[Path, typer.Argument(help="run of an edge model, or folder of a pipeline")],
    data: Annotated[Path, typer.Argument(help="folder of graphs; of a pipeline, of events")],
    page: Annotated[Path, typer.Argument(help="HTML page to write", callback=check_page)],
    event: Annotated[
        str | None, typer.Option(help="name of the event; the first without it")
    ] = None,
    builder: Annotated[
        BuilderName | None, typer.Option(help="what makes tracks of scored edges; components")
    ] = None,
    score_cut: Annotated[
        float | None, typer.Option(min=0, max=1, help="of the builder; its own without it")
    ] = None,
    min_hits: MinHits = 3,
    pt_min: PtMin = 1.0,
    parts: Annotated[
        int | None, typer.Option(min=1, help="sectors to cut the event into, and to show")
    ] = None,
    code: Code = None,
) -> None:
    """Draw an event in three dimensions, across the beam and along it: hits, true and found tracks,
    scored edges, sectors.
    """
    from bigtrk.parallel.ranks import discover
    from bigtrk.pipeline.event_display import DisplayOptions, display_event
    from bigtrk.records.pipeline import is_pipeline
    from bigtrk.tracks.matching import Criteria

    allow_code(code or ())
    if is_pipeline(run) and (builder or score_cut is not None):
        raise InputError(
            f"{run}: a pipeline has its own track builder; leave --builder and --score-cut out"
        )
    chosen = builder or BuilderName.COMPONENTS
    options = DisplayOptions(Criteria(min_hits, pt_min), event, parts, chosen, score_cut)
    display_event(run, data, page, options, discover().device)
    say(f"{page}: open it in a browser")
