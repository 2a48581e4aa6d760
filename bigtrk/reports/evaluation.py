"""The report of evaluations: edges, tracks, what limits them, and all of it in bins; and that of
tracks from files, as `bigtrk score` judges them.
"""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from bigtrk.records.evaluation import (
    EvaluationRecord,
    Judged,
    MatchingRecord,
    ScoreRecord,
    TrackRecord,
)
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports import figures
from bigtrk.reports.document import (
    Command,
    Curve,
    Document,
    Facts,
    Number,
    Plot,
    Plots,
    Table,
    table_of,
)
from bigtrk.reports.facts import facts, sentence
from bigtrk.reports.metrics import (
    AXES,
    BINNED_RULE,
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

LIMITS, SCAN_RULE = "What limits the tracks", "ATLAS matching, strict mode."
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
        data = shlex.join(record.folders or [record.data])
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
    tracked = [(_run(name), record.tracks) for name, record in evaluated if record.tracks]
    words = 1 if any(name for name, _ in evaluated) else 0
    folders = _data_folders([record for _, record in evaluated])
    edges = []
    for folder, (name, record) in zip(folders, evaluated, strict=True):
        counts = {"events": figures.count(record.events), "edges": figures.count(record.edges)}
        data = {"data": figures.text(folder), **counts}
        *metrics, (_, loss) = metric_cells(record.edge_metrics).items()
        edges.append(_run(name) | data | dict(metrics) | {"loss": loss})
    notes = [note for name, record in evaluated for note in _notes(name, record)]
    tracks = [run | matching_cells(match) for run, tracks in tracked for match in tracks.matching]
    track_notes = [_track_note(name, x.tracks) for name, x in evaluated if x.tracks]
    scans = [
        {**run, "score cut": figures.text(match.score_cut), **_rate_cells(match)}
        for run, tracks in tracked
        for match in tracks.scan
    ]
    limits = [run | row for run, tracks in tracked for row in _limits(tracks)]
    tables = [
        table_of("Evaluation: edges", edges, PAPER, *notes, text_columns=1 + words),
        table_of("Evaluation: tracks", tracks, *track_notes, text_columns=2 + words),
        table_of("Tracks by score cut", scans, SCAN_RULE, text_columns=words),
        table_of(LIMITS, limits, LIMITS_RULE, BINNED_RULE, text_columns=1 + words),
        *(table for name, record in evaluated for table in _binned(name, record)),
    ]
    return [table for table in tables if table.rows]


def _run(name: str) -> dict[str, str]:
    return {"run": name} if name else {}


def _limits(tracks: TrackRecord) -> Iterator[dict[str, str]]:
    """Makes a row per category of the loss budget, and one of what perfect scores find."""
    found = [
        (what, tracks.losses[category], sum(tracks.losses.values()))
        for category, what in CATEGORIES.items()
        if category in tracks.losses
    ]
    for match in tracks.perfect.matching if tracks.perfect else ():
        if (match.style, match.mode) == BUDGET and match.n_reconstructed is not None:
            n = match.n_particles or 0
            found.append(("found with perfect scores", match.n_reconstructed, n))
    for what, part, whole in found:
        share = share_cell(part, whole)
        yield {"reconstructable particles": what, "particles": figures.count(part), "%": share}


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


def matching_cells(match: MatchingRecord) -> dict[str, str]:
    """Returns one matching as cells by their columns."""
    return {"matching": match.style, "mode": match.mode, **_rate_cells(match)}


def _rate_cells(match: MatchingRecord) -> dict[str, str]:
    return {
        "efficiency %": figures.percent(match.efficiency, 2),
        "fake %": figures.percent(match.fake_rate, 2),
        "duplicate %": figures.percent(match.duplicate_rate, 2),
        "particles": figures.count(match.n_particles),
        "found": figures.count(match.n_reconstructed),
        "tracks": figures.count(match.n_tracks),
        "matched": figures.count(match.n_matched),
    }


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
    rows, notes = map(matching_cells, record.matching), (*_score_notes(record), SCORE_RULES)
    parts = [table_of(title, rows, *notes, text_columns=2)]
    if found := record.colliderml:
        both = (("as submitted", found.submitted), ("without those of track -1", found.in_tracks))
        public = [
            {"rows": name, **{key: f"{value:.4f}" for key, value in metrics}}
            for name, metrics in both
        ]
        task = "ColliderML's tracking task, its own metrics"
        parts.insert(0, table_of(task, public, COLLIDERML_RULES))
    if n_events > 1:
        parts.append(_by_event(record))
    return Document(title, "", [], [], parts)


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
            cells = dict(zip(("event", "TrackML"), named, strict=True)) | matching_cells(match)
            rows.append({key: cells[key] for key in cells if key not in ("tracks", "matched")})
    hidden = len(record.events) - LONGEST_TABLE
    notes = (f"{hidden} more events: --json tells of all.",) if hidden > 0 else ()
    return table_of("Tracks by event", rows, *notes, text_columns=4)
