"""The report of pipelines: what each stage keeps, gains and loses, and for which particles."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from bigtrk.records.evaluation import PipelineEvaluationRecord
from bigtrk.records.pipeline import PipelineFolder
from bigtrk.reports import figures, metrics
from bigtrk.reports.document import Bars, Document, Facts, Number, Plot, Plots, Table, table_of
from bigtrk.reports.evaluation import criteria_note, matching_cells, track_numbers, trained_on
from bigtrk.reports.facts import software
from bigtrk.reports.figures import INTERVALS

STAGES = {
    "event": "true edges of the events",
    "radius": "embedding and radius",
    "filter": "filter",
    "classifier": "classifier",
    "builder": "track builder",
}
STAGES_RULE = (
    "edges: per event; the classifier's are those above its cut, the track builder's those between "
    "successive hits of its tracks. edge eff.: share of the target edges (true ones of particles "
    "to be found). purity: target edges among target and false ones, where an edge that skips a "
    "hit is false. findable: share of the particles whose true edges left join enough hits; of the "
    "track builder, those found. change: percentage points. s: per event."
)
SHARES = {"efficiency": "edge efficiency", "purity": "edge purity", "findable": "findable"}
CATEGORIES = {
    "found": "found",
    "hits": "detector: hits that no edges join",
    "radius": "radius graph: true edges lacking",
    "filter": "filter: true edges cut",
    "true_edges_cut": "classifier: true edges below the cut",
    "merged": "classifier: merged by false edges",
    "builder": "track builder",
}
LOSSES_RULE = (
    "ATLAS matching, strict mode; each particle is in the first row that fits. Detector: even all "
    "its true edges give no track. Radius graph, filter, classifier: the true edges that it leaves "
    "give none. Merged: they do, but false edges above the cut join them to others. Track builder: "
    "all edges above the cut would give a track."
)
AXES_RULE = (
    "Distance: in eta and phi to the nearest other particle of enough hits. Vertex radius: of the "
    "production vertex from the beam line; smaller ones count in the first bin."
)

Shares = dict[str, float | None]  # by the names of SHARES; None if without meaning


def pipelines_report(pipelines: Sequence[PipelineFolder]) -> Document:
    """Makes the report of pipelines and their evaluations."""
    named = [(f"{one.name} on {each.data}", each) for one in pipelines for each in one.evaluations]
    limits = [(name, metrics.loss_limit(record.losses, CATEGORIES)) for name, record in named]
    return Document(
        title=f"bigtrk report: {', '.join(pipeline.name for pipeline in pipelines)}",
        lead=" ".join(map(_sentence, pipelines)),
        numbers=[(name, _numbers(record)) for name, record in named],
        verdict=[f"{name}: {limit}" if len(limits) > 1 else limit for name, limit in limits],
        parts=[
            *(part for name, record in named for part in _parts(name, record)),
            *map(_facts, pipelines),
        ],
    )


def pipeline_evaluation_report(
    pipeline: PipelineFolder, record: PipelineEvaluationRecord
) -> Document:
    """Makes the report of one evaluation of a pipeline."""
    report = pipelines_report([replace(pipeline, evaluations=(record,))])
    return replace(report, title=f"bigtrk evaluation: {pipeline.name} on {record.data}")


def summarise_pipelines(pipelines: Sequence[PipelineFolder]) -> dict[str, Any]:
    """Returns the records and evaluations of pipelines, for JSON."""
    return {
        "pipelines": [
            {
                "folder": str(pipeline.folder),
                **pipeline.record.model_dump(mode="json"),
                "evaluations": [each.model_dump(mode="json") for each in pipeline.evaluations],
            }
            for pipeline in pipelines
        ]
    }


def _sentence(pipeline: PipelineFolder) -> str:
    stages = pipeline.stages.values()
    events = max((record.data.train_events or 0 for record in stages), default=0)
    trained = f", its stages trained on {figures.count_of(events, 'event')}" if events else ""
    started = [record.started for record in stages if record.started]
    since = f" since {min(started)}" if started else ""
    return f"Pipeline {pipeline.name}: from hits to tracks in five stages{trained}{since}."


def _numbers(record: PipelineEvaluationRecord) -> list[Number]:
    seconds = sum(stage.seconds for stage in record.stages)
    time = [Number("s per event", figures.seconds(seconds))] if seconds else []
    events = Number("events", figures.count(record.events), figures.count_of(record.hits, "hit"))
    return [*track_numbers(record.tracks), *time, events]


def _facts(pipeline: PipelineFolder) -> Facts:
    record = pipeline.record
    before = " (before a stage was trained again)"
    evaluated = [
        f"{each.data}{'' if each.weights == record.weights else before}"
        for each in pipeline.evaluations
    ]
    stages = {
        stage: f"{figures.text(run.section('model').get('name'))}, "
        f"{figures.count(run.parameters)} parameters, "
        f"{figures.count_of(run.data.train_events, 'event')} of "
        f"{figures.count_of(run.data.edges, 'edge')}, {figures.text(run.started)}, "
        f"{software(run)}"
        for stage, run in pipeline.stages.items()
    }
    own = {
        "radius": figures.small(record.radius),
        "filter's cut": figures.small(record.cut),
        "evaluated on": ", ".join(evaluated) or "not yet: bigtrk evaluate PIPELINE EVENTS",
    }
    return Facts(f"Pipeline {pipeline.name}", stages | own)


def _parts(name: str, record: PipelineEvaluationRecord) -> Iterator[Plots | Facts | Table]:
    yield Plots(f"Stages of {name}", [*_stage_plots(record)])
    if record.scores:
        scores = [*metrics.edge_plots(record.scores, None)]
        yield Plots(f"The classifier's scores, {name}", scores, (metrics.EDGES_RULE,))
    lost = {x: what for x, what in CATEGORIES.items() if record.losses.get(x)}
    plots = []
    for axis in metrics.AXES:
        efficiency = record.loss_bins.get(f"found_by_{axis}")
        plots.append(metrics.bin_plot("Track efficiency, %", axis, {"found": efficiency}, (0,)))
        plots.append(metrics.lost_plot(axis, lost, record.loss_bins))
    yield Plots(f"Particles of {name}", plots, (INTERVALS, AXES_RULE))
    made = f"{record.made:%Y-%m-%d %H:%M} {record.made.tzname()}"
    counts = {"events": figures.count(record.events), "hits": figures.count(record.hits)}
    yield Facts(f"Evaluation on {record.data}", {**counts, "made": made})
    yield _stage_table(record)
    total = sum(record.losses.values())
    bars = [
        Bars(what, ["particles"], [record.losses[category] / total], number, "%")
        for number, (category, what) in enumerate(CATEGORIES.items())
        if total and category in record.losses
    ]
    budget = metrics.loss_rows(record.losses, CATEGORIES)
    plot = Plot("", ("%",), bars, bars="stack")
    yield table_of("Where particles are lost", budget, LOSSES_RULE, INTERVALS, plot=plot)
    rows = map(matching_cells, record.tracks.matching)
    yield table_of("Tracks", rows, *_notes(record), text_columns=2)


def _stage_shares(record: PipelineEvaluationRecord) -> list[tuple[Shares, Shares]]:
    """Returns, for each stage, the shares that it leaves, and by how much it changes them."""
    left: list[Shares] = [{"efficiency": None, "purity": None, "findable": 1.0}]
    for stage in record.stages:
        target, false = stage.target_edges, stage.edges - stage.true_edges
        shares = {
            "efficiency": (target, record.stages[0].target_edges),
            # The event's own edges are all true, so their purity means nothing.
            "purity": (target, target + false if len(left) > 1 else 0),
            "findable": (stage.findable, sum(record.losses.values())),
        }
        left.append({x: part / whole if whole else None for x, (part, whole) in shares.items()})
    changes: list[Shares] = [
        {
            name: None if before is None or after is None else after - before
            for (name, before), after in zip(one.items(), other.values(), strict=True)
        }
        for one, other in pairwise(left)
    ]
    return [*zip(left[1:], changes, strict=True)]


def _stage_plots(record: PipelineEvaluationRecord) -> Iterator[Plot]:
    names = [STAGES.get(stage.stage, stage.stage) for stage in record.stages]
    shares = _stage_shares(record)
    for title, places, values in (
        ("What each stage leaves, %", names, [left for left, _ in shares]),
        ("Gained and lost by each stage, %", names[1:], [change for _, change in shares[1:]]),
    ):
        bars = [
            Bars(label, places, [each[what] for each in values], number, "%")
            for number, (what, label) in enumerate(SHARES.items())
        ]
        yield Plot(title, ("",), bars)
    edges = [stage.edges / (record.events or 1) for stage in record.stages]
    yield Plot("Edges of an event", ("",), [Bars("Edges of an event", names, edges)], y_axis="log")
    seconds = [stage.seconds for stage in record.stages]
    yield Plot("Seconds of an event", ("",), [Bars("Seconds of an event", names, seconds)])


def _stage_table(record: PipelineEvaluationRecord) -> Table:
    rows = tuple(
        (
            STAGES.get(stage.stage, stage.stage),
            figures.count(stage.edges / record.events if record.events else None),
            *(figures.percent(each[name], 2) for name in SHARES for each in (left, change)),
            figures.seconds(stage.seconds or None),
        )
        for stage, (left, change) in zip(record.stages, _stage_shares(record), strict=True)
    )
    shares = ("edge eff. %", "change", "purity %", "change", "findable %", "change")
    cut = f"The classifier's cut is {record.edge_cut:g}; the track builder reads all its scores."
    columns = ("after stage", "edges", *shares, "time, s")
    return Table("What each stage leaves", columns, rows, (STAGES_RULE, cut))


def _notes(record: PipelineEvaluationRecord) -> Iterator[str]:
    yield criteria_note(record, record.tracks.trackml_score, " by all stages")
    if not sum(record.losses.values()):
        yield metrics.NO_PARTICLES
    yield from trained_on(record)
    yield from (f"{note}." for note in record.notes)
