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
    NO_PARTICLES,
    PAPER,
    bin_curve,
    bin_plot,
    bin_table,
    edge_numbers,
    loss_limit,
    loss_rows,
    lost_plot,
    metric_cells,
    share_cell,
    share_number,
)
from bigtrk.reports.score_plots import EDGES_RULE, TRACKS_RULE, best_scan, score_plots

BUDGET = ("ATLAS", "strict")  # style and mode in which losses are counted
CATEGORIES = {
    "found": "found",
    "no_true_edges": "graph: no true edges",
    "too_few_true_edges": "graph: too few true edges",
    "true_edges_cut": "model: true edges cut",
    "merged": "model: merged by false edges",
}
LOST = {name: what for name, what in CATEGORIES.items() if name != "found"}
LIMITS = {
    "graph": ("no_true_edges", "too_few_true_edges"),
    "model": ("true_edges_cut", "merged"),
}
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


def evaluation_report(record: EvaluationRecord, run: Run | None = None) -> Document:
    """Makes the report of one evaluation. run: whose model was evaluated."""
    name = run.folder.resolve().name if run else "the model"
    weights = f"{name}, {record.weights}" if run and record.weights else name
    evaluated = {
        "evaluated on": f"{record.events} events of {record.data}",
        "evaluated": f"{record.made:%Y-%m-%d %H:%M} {record.made.tzname()}",
    }
    lead = f"{sentence(run)} " if run else ""
    return Document(
        title=f"bigtrk evaluation: {weights} on {record.data}",
        lead=f"{lead}Evaluated on {record.events} events of {record.data}, {record.made:%Y-%m-%d}.",
        numbers=[(weights, evaluation_numbers(record))],
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
    verdict = [loss_limit(record.tracks.losses, LIMITS) if record.tracks else NOT_JUDGED]
    if record.events_trained_on:
        verdict.append(
            f"The model was trained on {record.events_trained_on} of these {record.events} events: "
            "evaluate it on others."
        )
    return verdict


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
    """Names the cut that makes the best tracks, with the command that uses it or that finds it."""
    model = shlex.quote(str(run.folder / (record.weights or ""))) if run else "RUN"
    tracks = record.tracks
    best = best_scan(tracks.scan) if tracks else None
    if tracks is None or best is None:
        data = shlex.join(record.folders or [record.data])
        return Command(
            "To see tracks by other cuts, and the best one:",
            f"bigtrk evaluate {model} {data} --tracks --scan-cuts",
        )
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

    def by_mode(title: str, axis: str, ratio: str) -> Plot:
        curves = [
            bin_curve(
                f"{mode}, perfect scores" if judged is perfect else mode,
                getattr(judged.bins(mode), f"{ratio}_by_{axis}"),
                axis,
                number,
                place=0.44 + 0.12 * number,
                dashed=judged is perfect,
            )
            for judged in (tracks, perfect)
            for number, mode in enumerate(MODES)
        ]
        return bin_plot(title, axis, curves, True)

    for axis in ("pt", "eta", "vertex", "hits"):
        yield by_mode("Track efficiency, %", axis, "efficiency")
        yield lost_plot(axis, LOST, tracks.loss_bins)
        yield by_mode("Found more than once, %", axis, "duplicates")
    yield by_mode("Fake tracks, %", "eta", "fakes")
    for title, ratio, axis in (
        ("Edge efficiency, %", "efficiency", "pt"),
        ("Edge efficiency, %", "efficiency", "eta"),
        ("Edge purity, %", "purity", "eta"),
    ):
        yield bin_plot(
            title, axis, [bin_curve("edges", getattr(edges, f"{ratio}_by_{axis}"), axis, 2)]
        )


def evaluation_tables(evaluated: Sequence[tuple[str, EvaluationRecord]]) -> list[Table]:
    """Makes tables of edges, tracks, their limits, and both in bins, as far as the records go, of
    evaluations by name.
    """
    named = [({"run": name} if name else {}, record) for name, record in evaluated]
    tracked = [(run, record.tracks) for run, record in named if record.tracks]
    words = 1 if any(run for run, _ in named) else 0
    folders = _data_folders([record for _, record in evaluated])
    edges = []
    for folder, (run, record) in zip(folders, named, strict=True):
        counts = {"events": figures.count(record.events), "edges": figures.count(record.edges)}
        data = {"data": figures.text(folder), **counts}
        *metrics, (_, loss) = metric_cells(record.edge_metrics).items()
        edges.append(run | data | dict(metrics) | {"loss": loss})
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
        table_of("Tracks by score cut", scans, "ATLAS matching, strict mode.", text_columns=words),
        table_of(
            "What limits the tracks", limits, LIMITS_RULE, BINNED_RULE, text_columns=1 + words
        ),
        *(table for name, record in evaluated for table in _binned(name, record)),
    ]
    return [table for table in tables if table.rows]


def _limits(tracks: TrackRecord) -> Iterator[dict[str, str]]:
    """Makes a row per category of the loss budget, and one of what perfect scores find."""
    found = [*loss_rows(tracks.losses, CATEGORIES)]
    for match in tracks.perfect.matching if tracks.perfect else ():
        if (match.style, match.mode) == BUDGET and match.n_reconstructed is not None:
            n = match.n_particles or 0
            found += [("found with perfect scores", match.n_reconstructed, n)]
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
    if n := record.events_without_tracks:
        yield (
            f"{n} of the events are not in the submission, and judged as events without a track."
            if record.colliderml
            else f"Not judged, since no tracks are given: {n} more of the events."
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
