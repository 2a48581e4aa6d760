"""The report of pipelines: what each stage leaves, gains and loses, and of which particles."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from bigtrk.records.evaluation import PipelineEvaluationRecord
from bigtrk.records.pipeline import PipelineFolder
from bigtrk.reports import figures
from bigtrk.reports.document import Bars, Document, Facts, Number, Plot, Plots, Table, table_of
from bigtrk.reports.evaluation import matching_cells, score_note, track_numbers
from bigtrk.reports.facts import section, software
from bigtrk.reports.metrics import (
    AXES,
    BINNED_RULE,
    NO_PARTICLES,
    bin_curve,
    bin_plot,
    bin_table,
    loss_limit,
    loss_rows,
    lost_plot,
    share_cell,
)
from bigtrk.reports.score_plots import EDGES_RULE, edge_plots

STAGES = {
    "event": "true edges of the events",
    "radius": "embedding and radius",
    "filter": "filter",
    "classifier": "classifier",
    "builder": "track builder",
}
STAGES_RULE = (
    "edges: per event; of the classifier those above its cut, of the track builder those that "
    "would be true if each track were a particle. edge eff.: share of the target edges, the true "
    "ones of particles to be found. purity: target edges among target and false ones, as also "
    "those are that skip a hit. findable: share of the particles to be found that the true edges "
    "left join to enough hits; of the track builder, those found. lost, gained: per cent since the "
    "stage before. s: per event."
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
# Their columns in tables by bins.
COLUMNS = dict(
    zip(
        CATEGORIES,
        ("found %", "det. %", "radius %", "filter %", "cut %", "merged %", "builder %"),
        strict=True,
    )
)
LOSSES_RULE = (
    "ATLAS matching, strict mode; each particle is in the first row that fits. Detector: even all "
    "its true edges together give no track. Radius graph, filter, classifier (edges above the "
    "cut): the true edges that are left there give none. Merged: they do, but the false edges "
    "above the cut join it to others. Track builder: all edges above the cut would give one."
)
AXES_RULE = (
    "Distance: in eta and phi to the nearest other particle of enough hits. Vertex radius: "
    "distance of the production vertex from the beam line; nearer ones count in the first bin."
)
# What each category of loss speaks against.
LIMITS = {
    "detector": ("hits",),
    "graph": ("radius", "filter"),
    "model": ("true_edges_cut", "merged"),
    "track builder": ("builder",),
}


def pipelines_report(pipelines: Sequence[PipelineFolder]) -> Document:
    """Makes the report of pipelines and of their evaluations."""
    title = f"bigtrk report: {', '.join(pipeline.name for pipeline in pipelines)}"
    records = [(pipeline.name, each) for pipeline in pipelines for each in pipeline.evaluations]
    return _report(title, pipelines, records)


def pipeline_evaluation_report(
    pipeline: PipelineFolder, record: PipelineEvaluationRecord
) -> Document:
    """Makes the report of one evaluation of a pipeline."""
    title = f"bigtrk evaluation: {pipeline.name} on {record.data}"
    return _report(title, [pipeline], [(pipeline.name, record)])


def summarise_pipelines(pipelines: Sequence[PipelineFolder]) -> dict[str, Any]:
    """Returns the records and evaluations of pipelines, JSON-able."""
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


def _report(
    title: str,
    pipelines: Sequence[PipelineFolder],
    records: Sequence[tuple[str, PipelineEvaluationRecord]],
) -> Document:
    named = [(f"{name} on {record.data}", record) for name, record in records]
    limits = [(name, loss_limit(record.losses, LIMITS)) for name, record in named]
    return Document(
        title=title,
        lead=" ".join(map(_sentence, pipelines)),
        numbers=[(name, _numbers(record)) for name, record in named],
        verdict=[f"{name}: {limit}" if len(limits) > 1 else limit for name, limit in limits],
        parts=[
            *(part for name, record in named for part in _parts(name, record)),
            *map(_facts, pipelines),
        ],
    )


def _sentence(pipeline: PipelineFolder) -> str:
    """Says what was trained on what."""
    stages = pipeline.stages.values()
    events = max((record.data.train_events or 0 for record in stages), default=0)
    trained = f", its stages trained on {events} events" if events else ""
    started = [record.started for record in stages if record.started]
    since = f" since {min(started)}" if started else ""
    return f"Pipeline {pipeline.name}: from hits to tracks in five stages{trained}{since}."


def _numbers(record: PipelineEvaluationRecord) -> list[Number]:
    """Lists the numbers of tracks, and the seconds of an event."""
    seconds = sum(stage.seconds for stage in record.stages)
    time = [Number("s per event", figures.seconds(seconds))] if seconds else []
    events = Number("events", figures.count(record.events), f"{figures.count(record.hits)} hits")
    return [*track_numbers(record.tracks), *time, events]


def _facts(pipeline: PipelineFolder) -> Facts:
    """Lists the stages with their trainings, what was chosen, and the data of evaluations."""
    record = pipeline.record
    evaluated = [
        each.data
        if each.weights == record.weights
        else f"{each.data} (before a stage was trained again)"
        for each in pipeline.evaluations
    ]
    stages = {
        stage: f"{figures.text(section(run, 'model').get('name'))}, "
        f"{figures.count(run.parameters)} parameters, {figures.count(run.data.train_events)} "
        f"events of {figures.count(run.data.edges)} edges, {figures.text(run.started)}, "
        f"{software(run)}"
        for stage, run in pipeline.stages.items()
    }
    return Facts(
        f"Pipeline {pipeline.name}",
        {
            **stages,
            "radius": figures.small(record.radius),
            "filter's cut": figures.small(record.cut),
            "evaluated on": ", ".join(evaluated) or "not yet: bigtrk evaluate PIPELINE EVENTS",
        },
    )


def _parts(name: str, record: PipelineEvaluationRecord) -> Iterator[Plots | Facts | Table]:
    """Makes the plots, the facts and the tables of one evaluation, in reading order."""
    shares = _stage_shares(record)
    yield Plots(f"Stages of {name}", [*_stage_plots(record, shares)])
    if record.scores:
        scores = [*edge_plots(record.scores, None)]
        yield Plots(f"The classifier's scores, {name}", scores, (EDGES_RULE,))
    yield Plots(f"Particles of {name}", [*_particle_plots(record)], (BINNED_RULE,))
    made = f"{record.made:%Y-%m-%d %H:%M} {record.made.tzname()}"
    counts = {"events": figures.count(record.events), "hits": figures.count(record.hits)}
    yield Facts(f"Evaluation on {record.data}", {**counts, "made": made})
    yield _stage_table(record, shares)
    yield _losses(record)
    rows = map(matching_cells, record.tracks.matching)
    yield table_of("Tracks", rows, *_notes(record), text_columns=2)
    for axis, label in AXES.items():
        known = {
            column: record.loss_bins.get(f"{category}_by_{axis}")
            for category, column in COLUMNS.items()
            if record.losses.get(category)
        }
        rules = (AXES_RULE,) if axis in ("distance", "vertex") else ()
        yield from bin_table(f"Losses by {label}", (label, "particles"), known, rules)


Shares = dict[str, float | None]  # by the names of SHARES; None where they say nothing


def _stage_shares(record: PipelineEvaluationRecord) -> list[Shares]:
    """Returns the shares that each stage leaves."""
    findable = sum(record.losses.values())
    found: list[Shares] = []
    for stage in record.stages:
        event = record.stages[0]
        target_and_false = stage.edges - stage.true_edges + stage.target_edges
        found.append(
            {
                "efficiency": _ratio(stage.target_edges, event.target_edges),
                # All edges of the event itself are true.
                "purity": _ratio(stage.target_edges, target_and_false) if found else None,
                "findable": _ratio(stage.findable, findable),
            }
        )
    return found


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _gained(before: Shares, after: Shares) -> Shares:
    """Returns what a stage gains; its losses are below 0."""
    pairs = {name: (before[name], after[name]) for name in SHARES}
    return {n: None if a is None or b is None else b - a for n, (a, b) in pairs.items()}


def _stage_plots(record: PipelineEvaluationRecord, shares: list[Shares]) -> Iterator[Plot]:
    """Makes plots of what stages leave and what each gains or loses; edges and seconds of an
    event.
    """
    names = [STAGES.get(stage.stage, stage.stage) for stage in record.stages]
    gains = [_gained(before, each) for before, each in pairwise(shares)]
    for title, places, values in (
        ("What each stage leaves, %", names, shares),
        ("Gained and lost by each stage, %", names[1:], gains),
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


def _stage_table(record: PipelineEvaluationRecord, shares: list[Shares]) -> Table:
    """Makes a row per stage, and one of the true edges of the events."""
    before: Shares = {"efficiency": None, "purity": None, "findable": 1.0}
    rows = []
    for stage, own in zip(record.stages, shares, strict=True):
        gained = _gained(before, own)
        lost = {name: None if gain is None else -gain for name, gain in gained.items()}
        ratios = (
            *(own["efficiency"], lost["efficiency"], own["purity"], gained["purity"]),
            *(own["findable"], lost["findable"]),
        )
        rows.append(
            (
                STAGES.get(stage.stage, stage.stage),
                figures.count(stage.edges / record.events if record.events else None),
                *(figures.percent(share, 2) for share in ratios),
                figures.seconds(stage.seconds or None),
            )
        )
        before = own
    columns = (
        *("after stage", "edges", "edge eff. %", "lost", "purity %", "gained"),
        *("findable %", "lost", "s"),
    )
    cut = f"The classifier's cut is {record.edge_cut:g}; the track builder reads all its scores."
    return Table("What each stage leaves", columns, tuple(rows), (STAGES_RULE, cut))


def _losses(record: PipelineEvaluationRecord) -> Table:
    """Makes a row per category; the plot has the shares of all as a bar."""
    found = [*loss_rows(record.losses, CATEGORIES)]
    rows = (
        {"particles to be found": what, "particles": figures.count(n), "%": share_cell(n, total)}
        for what, n, total in found
    )
    bars = [
        Bars(what, ["particles"], [n / total], number, "%")
        for number, (what, n, total) in enumerate(found)
        if total
    ]
    plot = Plot("", ("%",), bars, bars="stack")
    return table_of("Where particles are lost", rows, LOSSES_RULE, BINNED_RULE, plot=plot)


def _notes(record: PipelineEvaluationRecord) -> Iterator[str]:
    """Says what must be known of an evaluation to read its figures."""
    yield (
        f"{score_note(record.tracks.trackml_score)} Tracks and particles of at least "
        f"{record.min_hits} hits, particles of at least {record.pt_min:g} GeV; matching fraction "
        f"{record.matching_fraction:g}."
    )
    if not sum(record.losses.values()):
        yield NO_PARTICLES
    if record.events_trained_on:
        yield (
            f"Stages were trained on {record.events_trained_on} of these events, so this does not "
            "tell how they do on others."
        )
    if record.events_left_out:
        yield f"{record.events_left_out} events that a stage was trained on are left out."
    yield from (f"{note}." for note in record.notes)


def _particle_plots(record: PipelineEvaluationRecord) -> Iterator[Plot]:
    """Makes plots of efficiency and losses against each quantity."""
    lost = {name: what for name, what in CATEGORIES.items() if record.losses.get(name)}
    found = lost.pop("found", None)
    for axis in AXES:
        efficiency = record.loss_bins.get(f"found_by_{axis}") if found else None
        yield bin_plot("Track efficiency, %", axis, [bin_curve("found", efficiency, axis, 0)])
        yield lost_plot(axis, lost, record.loss_bins)
