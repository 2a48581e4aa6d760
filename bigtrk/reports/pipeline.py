"""The report of pipelines: what each stage leaves, gains and loses, and of which particles."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bigtrk.records.evaluation import PipelineEvaluationRecord, StageLeft
from bigtrk.records.pipeline import PipelineFolder
from bigtrk.records.run import RunRecord
from bigtrk.reports import figures
from bigtrk.reports.document import Bars, Document, Facts, Number, Plot, Plots, Table, table_of
from bigtrk.reports.evaluation import (
    NO_PARTICLES,
    matching_cells,
    score_note,
    track_numbers,
)
from bigtrk.reports.facts import section, software
from bigtrk.reports.metrics import AXES, BINNED_RULE, bin_curve, bin_plot, bin_table, share_cell
from bigtrk.reports.score_plots import EDGES_RULE, edge_plots

STAGES = {
    "event": "true edges of the events",
    "radius": "embedding and radius",
    "filter": "filter",
    "classifier": "classifier",
    "builder": "track builder",
}
STAGE_COLUMNS = (
    *("after stage", "edges", "edge eff. %", "lost", "purity %", "gained"),
    *("findable %", "lost", "s"),
)
STAGES_RULE = (
    "edges: per event; of the classifier those above its cut, of the track builder those that "
    "would be true if each track were a particle. edge eff.: share of the target edges, the true "
    "ones of particles to be found. purity: target edges among target and false ones, as also "
    "those are that skip a hit. findable: share of the particles to be found that the true edges "
    "left join to enough hits; of the track builder, those found. lost, gained: per cent since the "
    "stage before. s: per event."
)
SHARES = {"efficiency": "edge efficiency", "purity": "edge purity", "findable": "findable"}


@dataclass(frozen=True)
class Category:
    """A category of losses: its name in tables and plots, that of a column, and the place in a bin
    where its curve has points, so that error bars stand side by side.
    """

    name: str
    column: str
    place: float


CATEGORIES = {
    "found": Category("found", "found %", 0.5),
    "hits": Category("detector: hits that no edges join", "det. %", 0.35),
    "radius": Category("radius graph: true edges lacking", "radius %", 0.41),
    "filter": Category("filter: true edges cut", "filter %", 0.47),
    "true_edges_cut": Category("classifier: true edges below the cut", "cut %", 0.53),
    "merged": Category("classifier: merged by false edges", "merged %", 0.59),
    "builder": Category("track builder", "builder %", 0.65),
}
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
    limits = [(name, pipeline_limit(record)) for name, record in named]
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
    events = max((record.data.train_events or 0 for record in pipeline.stages.values()), default=0)
    trained = f", its stages trained on {events} events" if events else ""
    started = [record.started for record in pipeline.stages.values() if record.started]
    since = f" since {min(started)}" if started else ""
    return f"Pipeline {pipeline.name}: from hits to tracks in five stages{trained}{since}."


def _numbers(record: PipelineEvaluationRecord) -> list[Number]:
    """Lists the numbers of tracks, and the seconds that an event takes."""
    seconds = sum(stage.seconds for stage in record.stages)
    time = [Number("s per event", figures.seconds(seconds))] if seconds else []
    events = Number("events", figures.count(record.events), f"{figures.count(record.hits)} hits")
    return [*track_numbers(record.tracks), *time, events]


def pipeline_limit(record: PipelineEvaluationRecord) -> str:
    """Says which of detector, graph, model and track builder loses most of what is to be found."""
    total = sum(record.losses.values())
    if not total:
        return "What limits the tracks is not known: there are no particles to be found."
    lost = {
        what: sum(record.losses.get(name, 0) for name in names) for what, names in LIMITS.items()
    }
    first = max(lost, key=lambda what: lost[what])
    if not lost[first]:
        return f"Nothing limits the tracks: all {figures.count(total)} particles are found."
    told = ", ".join(f"the {what} {100 * n / total:.1f}" for what, n in lost.items())
    return f"The {first} limits the tracks: of 100 particles are lost by {told}."


def _facts(pipeline: PipelineFolder) -> Facts:
    """Says what a pipeline has chosen, and what it was evaluated on."""
    record = pipeline.record
    evaluated = [
        each.data
        if each.weights == record.weights
        else f"{each.data} (before a stage was trained again)"
        for each in pipeline.evaluations
    ]
    return Facts(
        f"Pipeline {pipeline.name}",
        {
            **{stage: _trained(run) for stage, run in pipeline.stages.items()},
            "radius": figures.small(record.radius),
            "filter's cut": figures.small(record.cut),
            "evaluated on": ", ".join(evaluated) or "not yet: bigtrk evaluate PIPELINE EVENTS",
        },
    )


def _trained(run: RunRecord) -> str:
    """Says what a stage is, and what it was trained with."""
    return (
        f"{figures.text(section(run, 'model').get('name'))}, {figures.count(run.parameters)} "
        f"parameters, {figures.count(run.data.train_events)} events of "
        f"{figures.count(run.data.edges)} edges, {figures.text(run.started)}, {software(run)}"
    )


def _parts(name: str, record: PipelineEvaluationRecord) -> Iterator[Plots | Facts | Table]:
    """Makes the plots, the facts and the tables of one evaluation, in reading order."""
    yield Plots(f"Stages of {name}", [*_stage_plots(record)])
    if record.scores:
        scores = [*edge_plots(record.scores, None)]
        yield Plots(f"The classifier's scores, {name}", scores, (EDGES_RULE,))
    yield Plots(f"Particles of {name}", [*_particle_plots(record)], (BINNED_RULE,))
    made = f"{record.made:%Y-%m-%d %H:%M} {record.made.tzname()}"
    counts = {"events": figures.count(record.events), "hits": figures.count(record.hits)}
    yield Facts(f"Evaluation on {record.data}", {**counts, "made": made})
    yield _stage_table(record)
    yield _losses(record)
    rows = map(matching_cells, record.tracks.matching)
    yield table_of("Tracks", rows, *_notes(record), text_columns=2)
    for axis, label in AXES.items():
        known = {
            category.column: record.loss_bins.get(f"{name}_by_{axis}")
            for name, category in CATEGORIES.items()
            if record.losses.get(name)
        }
        rules = (AXES_RULE,) if axis in ("distance", "vertex") else ()
        yield from bin_table(f"Losses by {label}", (label, "particles"), known, rules)


@dataclass(frozen=True)
class Shares:
    """Shares that a stage leaves; None where they say nothing."""

    efficiency: float | None
    purity: float | None
    findable: float | None

    def since(self, before: "Shares") -> "Shares":
        """Returns what was gained since the stage before; losses are below 0."""
        pairs = ((getattr(before, name), getattr(self, name)) for name in SHARES)
        return Shares(*(None if a is None or b is None else b - a for a, b in pairs))


def _stage_shares(record: PipelineEvaluationRecord) -> list[Shares]:
    """Returns what each stage leaves."""
    event, findable = record.stages[:1], sum(record.losses.values())

    def shares(stage: StageLeft) -> Shares:
        target_and_false = stage.edges - stage.true_edges + stage.target_edges
        return Shares(
            efficiency=_ratio(stage.target_edges, event[0].target_edges),
            # All that are there are true before any stage.
            purity=None if stage is event[0] else _ratio(stage.target_edges, target_and_false),
            findable=_ratio(stage.findable, findable),
        )

    return [*map(shares, record.stages)]


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _stage_plots(record: PipelineEvaluationRecord) -> Iterator[Plot]:
    """Makes plots of what stages leave and what each gains or loses; edges and seconds of an
    event.
    """
    names = [STAGES.get(stage.stage, stage.stage) for stage in record.stages]
    shares = _stage_shares(record)
    gains = [each.since(before) for before, each in pairwise(shares)]
    for title, places, values in (
        ("What each stage leaves, %", names, shares),
        ("Gained and lost by each stage, %", names[1:], gains),
    ):
        bars = [
            Bars(label, places, [getattr(each, what) for each in values], number, "%")
            for number, (what, label) in enumerate(SHARES.items())
        ]
        yield Plot(title, ("",), bars)
    edges = [stage.edges / (record.events or 1) for stage in record.stages]
    yield Plot("Edges of an event", ("",), [Bars("Edges of an event", names, edges)], y_axis="log")
    seconds = [stage.seconds for stage in record.stages]
    yield Plot("Seconds of an event", ("",), [Bars("Seconds of an event", names, seconds)])


def _stage_table(record: PipelineEvaluationRecord) -> Table:
    """Makes a row per stage, and one of the true edges that there are."""
    before = Shares(None, None, 1.0)
    rows = []
    for stage, shares in zip(record.stages, _stage_shares(record), strict=True):
        gained = shares.since(before)
        ratios = (
            shares.efficiency,
            None if gained.efficiency is None else -gained.efficiency,
            shares.purity,
            gained.purity,
            shares.findable,
            None if gained.findable is None else -gained.findable,
        )
        rows.append(
            (
                STAGES.get(stage.stage, stage.stage),
                figures.count(stage.edges / record.events if record.events else None),
                *(figures.percent(share, 2) for share in ratios),
                figures.seconds(stage.seconds or None),
            )
        )
        before = shares
    cut = f"The classifier's cut is {record.edge_cut:g}; the track builder reads all its scores."
    return Table("What each stage leaves", STAGE_COLUMNS, tuple(rows), (STAGES_RULE, cut))


def _losses(record: PipelineEvaluationRecord) -> Table:
    """Makes a row per category; the plot has the shares of all as a bar."""
    total = sum(record.losses.values())
    counts = {
        category.name: record.losses[name]
        for name, category in CATEGORIES.items()
        if name in record.losses
    }
    rows = (
        {"particles to be found": what, "particles": figures.count(n), "%": share_cell(n, total)}
        for what, n in counts.items()
    )
    bars = [
        Bars(what, ["particles"], [n / total], number, "%")
        for number, (what, n) in enumerate(counts.items())
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
    for axis in AXES:
        found, *lost = (
            bin_curve(
                category.name,
                record.loss_bins.get(f"{name}_by_{axis}") if record.losses.get(name) else None,
                axis,
                number,
                category.place,
            )
            for number, (name, category) in enumerate(CATEGORIES.items())
        )
        yield bin_plot("Track efficiency, %", axis, [found])
        yield bin_plot("Particles lost, %", axis, lost, True)
