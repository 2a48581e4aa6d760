"""Plots of what each stage of a pipeline leaves, loses and gains."""

from collections.abc import Iterator
from html import escape
from itertools import pairwise
from textwrap import wrap

import plotly.graph_objects as go

from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord
from bigtrk.reports.elements.charts import chart, colour
from bigtrk.reports.pipeline.stage_table import STAGES, Shares, stage_shares

GROUPED = {"barmode": "group"}
LABEL_WIDTH = 12  # letters of a line below a bar
SHARES = {"efficiency": "edge efficiency", "purity": "edge purity", "findable": "findable"}


def stage_plots(record: PipelineEvaluationRecord) -> Iterator[str]:
    """Draws what stages leave and what each gains or loses, in percent; edges and seconds of an
    event.
    """
    stages = (STAGES.get(stage.stage, stage.stage) for stage in record.stages)
    names = ["<br>".join(wrap(escape(stage, quote=False), LABEL_WIDTH)) for stage in stages]
    shares = stage_shares(record)
    yield chart("What each stage leaves, %", "", _bars(names, shares), GROUPED)
    gains = [each.since(before) for before, each in pairwise(shares)]
    yield chart("Gained and lost by each stage, %", "", _bars(names[1:], gains), GROUPED)
    events = record.events or 1
    edges = [go.Bar(x=names, y=[stage.edges / events for stage in record.stages])]
    seconds = [go.Bar(x=names, y=[stage.seconds for stage in record.stages])]
    for title, bars in (("Edges of an event", edges), ("Seconds of an event", seconds)):
        bars[0].update(legendgroup=title, marker={"color": colour(0)}, hovertemplate="%{y:.4g}")
        yield chart(title, "", bars, {"yaxis": {"type": "log"}} if bars is edges else None)


def _bars(names: list[str], shares: list[Shares]) -> list[go.Bar]:
    """Makes a group of bars per stage; shares that say nothing have none."""
    return [
        go.Bar(
            x=names,
            y=[None if share is None else 100 * share for share in values],
            name=label,
            legendgroup=label,
            marker={"color": colour(number)},
            hovertemplate="%{y:.2f} %",
        )
        for number, (what, label) in enumerate(SHARES.items())
        for values in [[getattr(each, what) for each in shares]]
        if any(share is not None for share in values)
    ]
