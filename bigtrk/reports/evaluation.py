"""The report of evaluations: edges, tracks, what limits them, and all of it in bins; and that of
tracks from files, as `bigtrk score` judges them.
"""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from bigtrk.records.evaluation import (
    ColliderMLMetrics,
    EvaluationRecord,
    Judged,
    MatchingRecord,
    ScoreRecord,
    TrackRecord,
)
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports import figures
from bigtrk.reports.document import Command, Curve, Document, Facts, Number, Plot, Plots, Table
from bigtrk.reports.facts import facts, sentence
from bigtrk.reports.metrics import (
    AXES,
    BINNED_RULE,
    METRIC_COLUMNS,
    PAPER,
    bin_curve,
    bin_plot,
    bin_table,
    edge_numbers,
    metric_cells,
    share_cell,
    share_number,
)
from bigtrk.reports.score_plots import EDGES_RULE, TRACKS_RULE, best_scan, score_plots

MATCHING_COLUMNS = (
    *("efficiency %", "fake %", "duplicate %"),
    *("particles", "found", "tracks", "matched"),
)
TRACK_COLUMNS = ("matching", "mode", *MATCHING_COLUMNS)
NO_PARTICLES = (
    "No particle has so many hits and a known pT so high; --pt-min 0 takes those of unknown "
    "momentum, too."
)
BUDGET = ("ATLAS", "strict")
CATEGORIES = {
    "found": "found",
    "no_true_edges": "graph: no true edges",
    "too_few_true_edges": "graph: too few true edges",
    "true_edges_cut": "model: true edges cut",
    "merged": "model: merged by false edges",
}
GRAPH, MODEL = ("no_true_edges", "too_few_true_edges"), ("true_edges_cut", "merged")
LIMITS_RULE = (
    "ATLAS matching, strict mode; each particle is in the first row that fits. Graph: the graph "
    "holds no true edge of it; or even all its true edges alone give no track. Model: the true "
    "edges that the model keeps give no track; or they do, but false edges join it to others. "
    "Perfect scores: all true edges are kept and no other."
)
TRACK_BINS_RULE = (
    "Tracks: ATLAS matching. perfect: found with perfect scores, strict mode. twice: of the found, "
    "those with more than one track, strict mode. fake: tracks of no particle, strict mode, by the "
    "mean eta of their hits."
)
EDGE_BINS_RULE = (
    "Edge eff.: by the particle of a target edge. Edge purity: by the mean eta of its hits."
)
BINS_KEY = f"Tracks: ATLAS matching; dashes: perfect scores. Lost: strict mode. {BINNED_RULE}"
MODES = ("strict", "acorn")
LOST = {name: what for name, what in CATEGORIES.items() if name != "found"}
# Colour of each curve, and where in a bin it has its points, so that error bars stand side by side.
PLACES = dict(
    zip((*MODES, "edges", *LOST.values()), (0.44, 0.56, 0.5, 0.38, 0.46, 0.54, 0.62), strict=True)
)
NOT_JUDGED = "No tracks were judged: 'bigtrk evaluate RUN DATA --tracks' says what limits them."
COLLIDERML_COLUMNS = ("rows", "trackml_eff", "fake_rate", "dup_rate", "physics_eff_pt1")
COLLIDERML_RULES = (
    "As ColliderML's package defines them: trackml_eff is over the weight of the hits submitted, "
    "not of all; track -1 is a track like any other; physics_eff_pt1 takes the submission's word "
    "(majority_particle_id) for what was found. Strict figures are below."
)
SCORE_RULES = (
    "strict: noise never matches. acorn: noise matches like a particle, as in GNN4ITk's tool. "
    "efficiency: found among particles. fake: tracks that match no particle. duplicate: tracks "
    "beyond the first of a particle found, per such particle."
)
LONGEST_TABLE = 10  # events, of six rows each; --json has them all

Evaluated = tuple[str, EvaluationRecord]


def evaluation_report(record: EvaluationRecord, run: Run | None = None) -> Document:
    """Makes the report of one evaluation. run: whose model was evaluated."""
    name = run.folder.resolve().name if run else "the model"
    of_weights = f"{name}, {record.weights}" if run and record.weights else name
    evaluated = {
        "evaluated on": f"{record.events} events of {record.data}",
        "evaluated": f"{record.made:%Y-%m-%d %H:%M} {record.made.tzname()}",
    }
    lead = f"{sentence(run)} " if run else ""
    return Document(
        title=f"bigtrk evaluation: {of_weights} on {record.data}",
        lead=f"{lead}Evaluated on {record.events} events of {record.data}, {record.made:%Y-%m-%d}.",
        numbers=[(of_weights, evaluation_numbers(record))],
        verdict=evaluation_verdict(record),
        parts=[
            *evaluation_plots("", record, run),
            *evaluation_tables([("", record)]),
            Facts("What was evaluated", {**(facts(run) if run else {}), **evaluated}),
        ],
    )


def named_evaluations(runs: Sequence[Run]) -> list[tuple[str, EvaluationRecord, Run]]:
    """Returns evaluations by name: the run's, with the data folder's where it has several."""
    return [
        (f"{name} on {folder}" if len(run.evaluations) > 1 else name, record, run)
        for name, run in zip(labels(runs), runs, strict=True)
        for folder, record in zip(_data_folders(run.evaluations), run.evaluations, strict=True)
    ]


def _data_folders(records: Sequence[EvaluationRecord]) -> list[str]:
    """Returns a short name of each data folder: its own, or its whole path where two share that."""
    paths = {record.data: Path(record.data).name for record in records}
    names = [*paths.values()]
    return [
        paths[record.data] if names.count(paths[record.data]) == 1 else record.data
        for record in records
    ]


def evaluation_numbers(record: EvaluationRecord) -> list[Number]:
    """Lists the numbers of tracks, where they were judged, before those of edges."""
    tracks = track_numbers(record.tracks) if record.tracks else []
    return [*tracks, *edge_numbers(record.edge_metrics)]


def track_numbers(tracks: Judged) -> list[Number]:
    """Lists efficiency and fakes in the loss budget's style and mode, and the TrackML score."""
    numbers = []
    for match in tracks.matching:
        if (match.style, match.mode) == BUDGET:
            numbers += share_number("track efficiency", match.efficiency, match.n_particles)
            numbers += share_number("fake tracks", match.fake_rate, match.n_tracks)
    if tracks.trackml_score is not None:
        numbers.append(Number("TrackML score", f"{tracks.trackml_score:.4f}"))
    return numbers


def evaluation_verdict(record: EvaluationRecord) -> list[str]:
    """Says what limits the tracks, and what speaks against the numbers."""
    verdict = [_track_limit(record.tracks)] if record.tracks else [NOT_JUDGED]
    if record.events_trained_on:
        verdict.append(
            f"The model was trained on {record.events_trained_on} of these {record.events} events: "
            "evaluate it on others."
        )
    return verdict


def _track_limit(tracks: TrackRecord) -> str:
    """Says whether the graph or the model loses more of the particles to be found."""
    losses, total = tracks.losses, sum(tracks.losses.values())
    if not total:
        return "What limits the tracks is not known: there are no particles to be found."
    graph, model = (sum(losses.get(name, 0) for name in names) for names in (GRAPH, MODEL))
    if not graph + model:
        return f"Nothing limits the tracks: all {figures.count(total)} particles are found."
    counts = (model, *(losses.get(name, 0) for name in MODEL), graph)
    lost, cut, merged, of_graph = (f"{100 * n / total:.1f}" for n in counts)
    return (
        f"The {'model' if model >= graph else 'graph'} limits the tracks: of 100 particles the "
        f"model loses {lost} ({cut} by edges cut, {merged} merged), the graph {of_graph}."
    )


def evaluation_plots(
    name: str, record: EvaluationRecord, run: Run | None
) -> Iterator[Plots | Command]:
    """Makes the plots of an evaluation; `name` goes into their titles. run: for the command that
    uses the best cut.
    """
    whose = f"Evaluation of {name}" if name else "Evaluation"
    notes = (TRACKS_RULE, EDGES_RULE) if record.tracks and record.tracks.scan else (EDGES_RULE,)
    by_score = [plot for plot in score_plots(record) if plot.filled]
    if by_score:
        yield Plots(f"{whose} against the score", by_score, notes)
        yield _best_cut(record, run)
    yield Plots(f"{whose} in bins", [*_bin_plots(record)], (BINS_KEY,))


def _best_cut(record: EvaluationRecord, run: Run | None) -> Command:
    """Says which cut makes the best tracks, and the command that uses it or that finds it."""
    model = shlex.quote(str(run.folder / (record.weights or ""))) if run else "RUN"
    tracks = record.tracks
    best = best_scan(tracks.scan) if tracks else None
    if tracks is None or best is None:
        told = "To see tracks by other cuts, and the best one:"
        data = shlex.quote(record.data)
        return Command(told, f"bigtrk evaluate {model} {data} --tracks --scan-cuts")
    return Command(
        f"The best cut for tracks is {best.score_cut:g}. To use it:",
        f"bigtrk infer {model} GRAPHS TRACKS --builder {shlex.quote(tracks.builder)} "
        f"--score-cut {best.score_cut:g}",
    )


def _bin_plots(record: EvaluationRecord) -> Iterator[Plot]:
    """Makes plots by each quantity of efficiency, particles lost, duplicates; of fakes by eta; then
    of edges.
    """
    tracks, edges = record.tracks or TrackRecord(), record.edge_bins
    perfect = tracks.perfect or Judged()

    def curve(name: str, axis: str, ratio: str, of: object, dashed: bool = False) -> Curve:
        binned = getattr(of, f"{ratio}_by_{axis}")
        said = f"{name}, perfect scores" if dashed else name
        colour = [*PLACES].index(name)
        return bin_curve(said, binned, axis, colour, PLACES[name], dashed)

    def by_mode(axis: str, ratio: str) -> list[Curve]:
        model = [curve(mode, axis, ratio, tracks.bins(mode)) for mode in MODES]
        return [*model, *(curve(mode, axis, ratio, perfect.bins(mode), True) for mode in MODES)]

    for axis in ("pt", "eta", "vertex", "hits"):
        yield bin_plot("Track efficiency, %", axis, by_mode(axis, "efficiency"), True)
        lost = [
            bin_curve(
                what, tracks.loss_bins.get(f"{name}_by_{axis}"), axis, 3 + number, PLACES[what]
            )
            for number, (name, what) in enumerate(LOST.items())
        ]
        yield bin_plot("Particles lost, %", axis, lost, True)
        yield bin_plot("Found more than once, %", axis, by_mode(axis, "duplicates"), True)
    yield bin_plot("Fake tracks, %", "eta", by_mode("eta", "fakes"), True)
    for axis in ("pt", "eta"):
        yield bin_plot("Edge efficiency, %", axis, [curve("edges", axis, "efficiency", edges)])
    yield bin_plot("Edge purity, %", "eta", [curve("edges", "eta", "purity", edges)])


def evaluation_tables(evaluated: Sequence[Evaluated]) -> list[Table]:
    """Makes tables of edges, tracks, their limits, and both in bins, as far as the records go."""
    if not evaluated:
        return []
    run = ("run",) if any(name for name, _ in evaluated) else ()
    tables = [_edges(evaluated, run)]
    tracked = [(name, record.tracks) for name, record in evaluated if record.tracks]
    if tracked:
        rows = [(*_name(x), *matching_cells(m)) for x, tracks in tracked for m in tracks.matching]
        notes = tuple(_track_note(name, tracks) for name, tracks in tracked)
        columns = (*run, *TRACK_COLUMNS)
        tables.append(Table("Evaluation: tracks", columns, tuple(rows), notes, 2 + len(run)))
        rows = [
            (*_name(name), figures.text(match.score_cut), *_rate_cells(match))
            for name, tracks in tracked
            for match in tracks.scan
        ]
        columns, notes = (*run, "score cut", *MATCHING_COLUMNS), ("ATLAS matching, strict mode.",)
        tables.append(Table("Tracks by score cut", columns, tuple(rows), notes, len(run)))
        rows = [row for name, tracks in tracked for row in _limits(name, tracks)]
        columns = (*run, "reconstructable particles", "particles", "%")
        notes = (LIMITS_RULE, BINNED_RULE)
        tables.append(Table("What limits the tracks", columns, tuple(rows), notes, 1 + len(run)))
    binned = (table for name, record in evaluated for table in _binned(name, record))
    return [*(table for table in tables if table.rows), *binned]


def _name(name: str) -> tuple[str, ...]:
    return (name,) if name else ()


def _limits(name: str, tracks: TrackRecord) -> Iterator[tuple[str, ...]]:
    """Makes a row per category of the loss budget, and one of what perfect scores find."""
    total = sum(tracks.losses.values())
    for category, what in CATEGORIES.items():
        if category in tracks.losses:
            n = tracks.losses[category]
            yield (*_name(name), what, figures.count(n), share_cell(n, total))
    for match in tracks.perfect.matching if tracks.perfect else ():
        if (match.style, match.mode) == BUDGET and match.n_reconstructed is not None:
            n = match.n_reconstructed
            share = share_cell(n, match.n_particles or 0)
            yield (*_name(name), "found with perfect scores", figures.count(n), share)


def _edges(evaluated: Sequence[Evaluated], run: tuple[str, ...]) -> Table:
    folders = _data_folders([record for _, record in evaluated])
    rows = tuple(
        (
            *_name(name),
            figures.text(folder),
            figures.count(record.events),
            figures.count(record.edges),
            *metric_cells(record.edge_metrics),
        )
        for folder, (name, record) in zip(folders, evaluated, strict=True)
    )
    columns = (*run, "data", "events", "edges", *METRIC_COLUMNS[:-1], "loss")
    notes = [note for name, record in evaluated for note in _notes(name, record)]
    return Table("Evaluation: edges", columns, rows, (PAPER, *notes), 1 + len(run))


def _notes(name: str, record: EvaluationRecord) -> Iterator[str]:
    """Says what must be known of an evaluation to read its figures."""
    whose = f"{name}: " if name else ""
    if record.weights is not None:
        yield f"{whose}the weights are those of {record.weights}."
    if record.step is not None:
        yield f"{whose}the weights are those of the checkpoint at step {record.step}."
    if record.events_trained_on:
        yield (
            f"{whose}the model was trained on {record.events_trained_on} of these events, so this "
            "does not tell how it does on others."
        )
    if record.events_left_out:
        yield f"{whose}{record.events_left_out} events that the model was trained on are left out."
    if record.edge_metrics.undefined:
        yield f"{whose}{record.edge_metrics.undefined}."


def matching_cells(match: MatchingRecord) -> tuple[str, ...]:
    """Makes the cells of one matching, in the order of TRACK_COLUMNS."""
    return (match.style, match.mode, *_rate_cells(match))


def _rate_cells(match: MatchingRecord) -> tuple[str, ...]:
    rates = (match.efficiency, match.fake_rate, match.duplicate_rate)
    counts = (match.n_particles, match.n_reconstructed, match.n_tracks, match.n_matched)
    return (*(figures.percent(rate, 2) for rate in rates), *map(figures.count, counts))


def score_note(score: float | None) -> str:
    """Says what the TrackML score is."""
    if score is None:
        return (
            "TrackML score unknown, since the truth does not give every hit a weight, or 0 to all."
        )
    return f"TrackML score {score:.4f}."


def _track_note(name: str, tracks: TrackRecord) -> str:
    return (
        f"{name + ': ' if name else ''}{score_note(tracks.trackml_score)} Tracks by "
        f"{tracks.builder} from edges with a score above {figures.text(tracks.score_cut)}; "
        f"particles of at least {figures.text(tracks.min_hits)} hits and "
        f"{figures.text(tracks.pt_min)} GeV; matching fraction "
        f"{figures.text(tracks.matching_fraction)}."
    )


def _binned(name: str, record: EvaluationRecord) -> Iterator[Table]:
    """Makes tables by pT and by eta, none without bins. `name` goes into their titles."""
    edges, tracks = record.edge_bins, record.tracks or TrackRecord()
    strict, acorn = tracks.bins("strict"), tracks.bins("acorn")
    perfect = (tracks.perfect or Judged()).bins("strict")
    for axis in ("pt", "eta"):
        columns = {
            "eff. % strict": getattr(strict, f"efficiency_by_{axis}"),
            "eff. % acorn": getattr(acorn, f"efficiency_by_{axis}"),
            "eff. % perfect": getattr(perfect, f"efficiency_by_{axis}"),
            "twice %": strict.duplicates_by_pt if axis == "pt" else None,
            "fake %": strict.fakes_by_eta if axis == "eta" else None,
            "edge eff. %": getattr(edges, f"efficiency_by_{axis}"),
            "edge purity %": edges.purity_by_eta if axis == "eta" else None,
        }
        has_tracks = columns["eff. % strict"] is not None
        rules = (TRACK_BINS_RULE, EDGE_BINS_RULE) if has_tracks else (EDGE_BINS_RULE,)
        title = f"Evaluation{f' of {name}' if name else ''} by {AXES[axis].partition(',')[0]}"
        first = "particles" if has_tracks else "target edges"
        yield from bin_table(title, (AXES[axis], first), columns, (*rules, BINNED_RULE))


def score_report(record: ScoreRecord) -> Document:
    """Makes the report of tracks from files: of all events and, of several, of the first ones."""
    n_events, n_hits = len(record.events), sum(event.hits for event in record.events)
    whose = record.events[0].event if n_events == 1 else f"{n_events} events"
    title = f"Tracks of {whose}, {figures.count(n_hits)} hits"
    rows = tuple(map(matching_cells, record.matching))
    parts = [Table(title, TRACK_COLUMNS, rows, (*_score_notes(record), SCORE_RULES), 2)]
    if found := record.colliderml:
        both = (("as submitted", found.submitted), ("without those of track -1", found.in_tracks))
        rows = tuple((name, *_colliderml_cells(metrics)) for name, metrics in both)
        public = "ColliderML's tracking task, its own metrics"
        parts.insert(0, Table(public, COLLIDERML_COLUMNS, rows, (COLLIDERML_RULES,)))
    if n_events > 1:
        parts.append(_by_event(record))
    return Document(title, "", [], [], parts)


def _colliderml_cells(metrics: ColliderMLMetrics) -> tuple[str, ...]:
    return tuple(f"{getattr(metrics, name):.4f}" for name in COLLIDERML_COLUMNS[1:])


def _score_notes(record: ScoreRecord) -> Iterator[str]:
    yield (
        f"{score_note(record.trackml_score)} Tracks and particles of at least {record.min_hits} "
        f"hits, particles of at least {record.pt_min} GeV; matching fraction "
        f"{record.matching_fraction}."
    )
    known = sum(event.trackml_score is not None for event in record.events)
    if 0 < known < len(record.events):
        yield (
            f"The TrackML score is the mean over {known} of {len(record.events)} events; the truth "
            "of the others gives no weights."
        )
    if not any(match.n_particles for match in record.matching):
        yield NO_PARTICLES
    if record.events_without_tracks and record.colliderml:
        yield (
            f"{record.events_without_tracks} of the events are not in the submission, and judged "
            "as events without a track."
        )
    elif record.events_without_tracks:
        yield (
            f"Not judged, since no tracks are given: {record.events_without_tracks} more of the "
            "events."
        )


def _by_event(record: ScoreRecord) -> Table:
    """Makes a row per event and matching; the first one names the event."""
    rows = []
    for event in record.events[:LONGEST_TABLE]:
        score = figures.DASH if event.trackml_score is None else f"{event.trackml_score:.4f}"
        for number, match in enumerate(event.matching):
            named = ("", "") if number else (event.event, score)
            rows.append((*named, *matching_cells(match)[:-2]))
    hidden = len(record.events) - LONGEST_TABLE
    notes = (f"{hidden} more events: --json tells of all.",) if hidden > 0 else ()
    columns = ("event", "TrackML", *TRACK_COLUMNS[:-2])
    return Table("Tracks by event", columns, tuple(rows), notes, 4)
