"""The reports of evaluations (edges, tracks, limits, bins) and of `bigtrk score`."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from bigtrk.records.evaluation import (
    LOG_AXES,
    EvaluationRecord,
    FitScore,
    Judged,
    MatchingRecord,
    ParameterBins,
    PipelineEvaluationRecord,
    RuleScore,
    ScoreRecord,
    TrackRecord,
)
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports import figures, metrics
from bigtrk.reports.document import (
    Axis,
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
from bigtrk.reports.figures import INTERVALS

BUDGET = ("ATLAS", "strict")  # style and mode in which losses are counted
CATEGORIES = {
    "found": "found",
    "no_true_edges": "graph: no true edges",
    "too_few_true_edges": "graph: too few true edges",
    "true_edges_cut": "model: true edges cut",
    "merged": "model: merged by false edges",
}
LIMITS_RULE = (
    "ATLAS matching, strict mode; each particle is in the first row that fits. Graph: it holds no "
    "true edge of the particle, or even all true edges give no track. Model: the true edges that "
    "it keeps give no track, or false edges join them to others. Perfect scores: exactly the true "
    "edges are kept."
)
BINS_KEY = (
    "Tracks: ATLAS matching; dashes: perfect scores. Lost: strict mode. Fakes: by the mean eta of "
    "their hits. Edge efficiency: by the particle of a target edge; purity: by the mean eta of its "
    f"hits. {INTERVALS}"
)
# Column of each rate and count of matched tracks, and its name in the record.
RATES = {
    "efficiency %": "efficiency",
    "fake %": "fake_rate",
    "duplicate %": "duplicate_rate",
    "particles": "n_particles",
    "found": "n_reconstructed",
    "tracks": "n_tracks",
    "matched": "n_matched",
}
NOT_JUDGED = "No tracks were judged: 'bigtrk evaluate RUN DATA --tracks' says what limits them."
COLLIDERML_RULES = (
    "As ColliderML's package defines them: trackml_eff is over the weight of the submitted hits "
    "alone; track -1 is a track; physics_eff_pt1 takes the submission's majority_particle_id as "
    "found. Strict figures are below."
)
FIT_UNITS = {"d0": "mm", "z0": "mm", "phi": "rad", "theta": "rad", "qop": "1/GeV"}
FITS_RULE = (
    "fits of tracks with most hits from one particle of the beam line, against its truth; widths "
    "are half of the central 68 %."
)
SCORE_RULES = (
    "strict: noise never matches. acorn: noise matches like a particle, as in GNN4ITk's tool. "
    "efficiency: particles found. fake: tracks that match no particle. duplicate: further tracks "
    "of a particle, per particle found."
)


def evaluation_report(record: EvaluationRecord, run: Run | None = None) -> Document:
    """Makes the report of one evaluation. run: the run whose model was evaluated."""
    name = run.folder.resolve().name if run else "the model"
    weights = f"{name}, {record.weights}" if run and record.weights else name
    evaluated = {
        "evaluated on": f"{figures.count_of(record.events, 'event')} of {record.data}",
        "evaluated": f"{record.made:%Y-%m-%d %H:%M} {record.made.tzname()}",
    }
    lead = f"{sentence(run)} " if run else ""
    return Document(
        title=f"bigtrk evaluation: {weights} on {record.data}",
        lead=f"{lead}Evaluated on {evaluated['evaluated on']}, {record.made:%Y-%m-%d}.",
        numbers=[(weights, evaluation_numbers(record))],
        verdict=evaluation_verdict(record, run),
        parts=[
            *evaluation_plots("", record, run),
            *evaluation_tables([("", record, run)]),
            Facts("What was evaluated", {**(facts(run) if run else {}), **evaluated}),
        ],
    )


def named_evaluations(runs: Sequence[Run]) -> list[tuple[str, EvaluationRecord, Run]]:
    """Lists evaluations with names: their run, and the folder of data if a run has several."""
    return [
        (f"{name} on {folder}" if len(run.evaluations) > 1 else name, record, run)
        for name, run in zip(labels(runs), runs, strict=True)
        for folder, record in zip(_data_folders(run.evaluations), run.evaluations, strict=True)
    ]


def _data_folders(records: Sequence[EvaluationRecord]) -> list[str]:
    """Returns the name of each record's data folder; its whole path if two share a name."""
    folders = [record.data for record in records]
    names = [Path(folder).name for folder in dict.fromkeys(folders)]
    return [x if names.count(Path(x).name) > 1 else Path(x).name for x in folders]


def evaluation_numbers(record: EvaluationRecord) -> list[Number]:
    """Lists the key numbers: of tracks, if they were judged, then of edges."""
    return [*track_numbers(record.tracks or Judged()), *metrics.edge_numbers(record.edge_metrics)]


def track_numbers(tracks: Judged) -> list[Number]:
    """Lists efficiency and fake rate by ATLAS matching in strict mode, and the TrackML score."""
    numbers = []
    for match in tracks.matching:
        if (match.style, match.mode) == BUDGET:
            numbers += metrics.share_number("track efficiency", match.efficiency, match.n_particles)
            numbers += metrics.share_number("fake tracks", match.fake_rate, match.n_tracks)
    if tracks.trackml_score is not None:
        numbers.append(Number("TrackML score", f"{tracks.trackml_score:.4f}"))
    return numbers


def evaluation_verdict(record: EvaluationRecord, run: Run | None) -> list[str]:
    """Lists what limits the tracks, and warnings about the numbers."""
    limit = metrics.loss_limit(record.tracks.losses, CATEGORIES) if record.tracks else NOT_JUDGED
    seen = trained_on(record) if record.events_trained_on else []
    return [limit, *outdated(record, run), *seen]


def outdated(record: EvaluationRecord, run: Run | None) -> list[str]:
    """Returns a warning if `run` has trained on since it was evaluated, else []."""
    if run and record.step is not None and record.step < run.step:
        at = f"Evaluated after step {record.step}, but the run is at step {run.step}"
        return [f"{at}: evaluate again."]
    finished = run.record.finished if run else None
    if record.step is None and finished and record.made < finished:
        return ["The evaluation is older than the end of the run: evaluate again."]
    return []


def trained_on(record: EvaluationRecord | PipelineEvaluationRecord) -> list[str]:
    """Lists a note on evaluated events that trained the model, or that were left out for that."""
    if n := record.events_trained_on:
        return [f"It was trained on {n} of these events: evaluate it on others."]
    n = record.events_left_out
    return [f"Left out: {figures.count_of(n, 'event')} that it was trained on."] if n else []


def evaluation_plots(
    name: str, record: EvaluationRecord, run: Run | None
) -> Iterator[Plots | Command]:
    """Yields the plots, and a command for the best cut of `run`. name: put in the titles."""
    whose = f"Evaluation of {name}" if name else "Evaluation"
    notes = [metrics.TRACKS_RULE] if record.tracks and record.tracks.scan else []
    by_score = [plot for plot in metrics.score_plots(record) if plot.filled]
    if by_score:
        yield Plots(f"{whose} against the score", by_score, [*notes, metrics.EDGES_RULE])
        yield _best_cut(record, run)
    yield Plots(f"{whose} in bins", [*_bin_plots(record)], (BINS_KEY,))


def _best_cut(record: EvaluationRecord, run: Run | None) -> Command:
    model = shlex.quote(str(run.folder / (record.weights or ""))) if run else "RUN"
    tracks = record.tracks
    best = metrics.best_scan(tracks.scan) if tracks else None
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
    tracks = record.tracks or TrackRecord()
    perfect = tracks.perfect or Judged()
    modes = {"strict": tracks.bins("strict"), "acorn": tracks.bins("acorn")}
    dashed = {f"{mode}, perfect scores": perfect.bins(mode) for mode in modes}

    def by_mode(title: str, ratio: str, axis: str) -> Plot:
        ratios = {x: y.get(f"{ratio}_by_{axis}") for x, y in (modes | dashed).items()}
        return metrics.bin_plot(title, axis, ratios, (0, 1), dashed)

    for axis in ("pt", "eta", "vertex", "hits"):
        yield by_mode("Track efficiency, %", "efficiency", axis)
        yield metrics.lost_plot(axis, CATEGORIES, tracks.loss_bins)
        yield by_mode("Found more than once, %", "duplicates", axis)
    yield by_mode("Fake tracks, %", "fakes", "eta")
    for ratio, axis in (("efficiency", "pt"), ("efficiency", "eta"), ("purity", "eta")):
        edges = {"edges": record.edge_bins.get(f"{ratio}_by_{axis}")}
        yield metrics.bin_plot(f"Edge {ratio}, %", axis, edges, (2,))


def evaluation_tables(
    evaluated: Sequence[tuple[str, EvaluationRecord, Run | None]],
) -> list[Table]:
    """Makes tables of edges, of tracks and of what limits them, for named evaluations."""
    edges, tracks, scans, limits = list[dict[str, str]](), list[dict[str, str]](), [], []
    notes, track_notes = [metrics.PAPER], []
    folders = _data_folders([record for _, record, _ in evaluated])
    for folder, (name, record, own) in zip(folders, evaluated, strict=True):
        run, whose = ({"run": name}, f"{name}: ") if name else ({}, "")
        counts = {"events": figures.count(record.events), "edges": figures.count(record.edges)}
        cells = metrics.metric_cells(record.edge_metrics)
        loss = {"loss": cells.pop("val. loss")}
        edges.append({**run, "data": figures.text(folder), **counts, **cells, **loss})
        notes += [f"{whose}{note}" for note in _notes(record, own)]
        if judged := record.tracks:
            tracks += [run | matching_cells(match) for match in judged.matching]
            by = f" by {judged.builder} from edges with a score above "
            by += figures.text(judged.score_cut)
            track_notes.append(f"{whose}{criteria_note(judged, judged.trackml_score, by)}")
            scans += [
                {**run, "score cut": figures.text(match.score_cut), **_rates(match)}
                for match in judged.scan
            ]
            limits += [run | row for row in metrics.loss_rows(judged.losses, CATEGORIES)]
            for match in judged.perfect.matching if judged.perfect else ():
                if (match.style, match.mode) == BUDGET and (n := match.n_reconstructed) is not None:
                    share = metrics.share_cell(n, match.n_particles or 0)
                    what = {"particles to be found": "found with perfect scores"}
                    limits.append({**run, **what, "particles": figures.count(n), "%": share})
    words = int(any(name for name, *_ in evaluated))
    tables = [
        table_of("Evaluation: edges", edges, *notes, text_columns=1 + words),
        table_of("Evaluation: tracks", tracks, *track_notes, text_columns=2 + words),
        table_of("Tracks by score cut", scans, "ATLAS matching, strict mode.", text_columns=words),
        table_of("What limits the tracks", limits, LIMITS_RULE, INTERVALS, text_columns=1 + words),
    ]
    return [table for table in tables if table.rows]


def _notes(record: EvaluationRecord, run: Run | None) -> Iterator[str]:
    if record.weights is not None:
        yield f"the weights are those of {record.weights}."
    if record.step is not None:
        yield f"the weights are those of step {record.step}."
    yield from outdated(record, run)
    yield from trained_on(record)
    if record.edge_metrics.undefined:
        yield f"{record.edge_metrics.undefined}."


def matching_cells(match: MatchingRecord) -> dict[str, str]:
    """Returns the cells of one matching by column."""
    return {"matching": match.style, "mode": match.mode, **_rates(match)}


def _rates(match: MatchingRecord) -> dict[str, str]:
    return {
        column: figures.percent(getattr(match, name), 2)
        if column.endswith("%")
        else figures.count(getattr(match, name))
        for column, name in RATES.items()
    }


def criteria_note(
    given: TrackRecord | ScoreRecord | PipelineEvaluationRecord, score: float | None, by: str = ""
) -> str:
    """Writes by which criteria tracks were judged, and their score. by: who made them."""
    hits, pt, share = (
        figures.text(x) for x in (given.min_hits, given.pt_min, given.matching_fraction)
    )
    known = "unknown, since the truth does not give every hit a weight, or 0 to all"
    tracks = f"Tracks{by}; tracks" if by else "Tracks"
    return (
        f"TrackML score {known if score is None else f'{score:.4f} (of all particles)'}. {tracks} "
        f"and particles of at least {hits} hits, particles of at least {pt} GeV; matching fraction "
        f"{share}."
    )


def score_report(record: ScoreRecord) -> Document:
    """Makes the report of `bigtrk score`: tracks from files, over all events together."""
    n_events, n_hits = len(record.events), sum(event.hits for event in record.events)
    whose = record.events[0].event if n_events == 1 else f"{n_events} events"
    title = f"Tracks of {whose}, {figures.count_of(n_hits, 'hit')}"
    rows, notes = map(matching_cells, record.matching), (*_score_notes(record), SCORE_RULES)
    parts: list[Table | Plots] = [table_of(title, rows, *notes, text_columns=2)]
    if found := record.colliderml:
        both = {"as submitted": found.submitted, "without those of track -1": found.in_tracks}
        public = [
            {"rows": name, **{key: f"{value:.4f}" for key, value in own}}
            for name, own in both.items()
        ]
        task = "ColliderML's tracking task, its own metrics"
        parts.insert(0, table_of(task, public, COLLIDERML_RULES))
    if record.rules:
        parts.append(_rules_table(record))
    if record.fits:
        parts += [_fits_table(record.fits), _fit_plots(record.fits)]
    return Document(title, "", [], [], parts)


def _rules_table(record: ScoreRecord) -> Table:
    strict = next(match for match in record.matching if match.mode == "strict")
    n_tracks, n_matched = strict.n_tracks or 0, strict.n_matched or 0
    ours = RuleScore(
        rule="bigtrk strict",
        targets="",
        counted_tracks="",
        particles=strict.n_particles or 0,
        found=strict.n_reconstructed or 0,
        tracks=n_tracks,
        fakes=n_tracks - n_matched,
    )
    rows = [
        {
            "rule": x.rule,
            "efficiency %": figures.percent(x.found / x.particles if x.particles else None, 2),
            "fake %": figures.percent(x.fakes / x.tracks if x.tracks else None, 2),
            "particles": figures.count(x.particles) if isinstance(x.particles, int) else "",
            "tracks": figures.count(x.tracks),
        }
        for x in (ours, *record.rules)
    ]
    notes = (f"{one.rule}: {one.targets}; tracks: {one.counted_tracks}." for one in record.rules)
    return table_of("The same tracks by published rules", rows, *notes)


def _fits_table(fits: FitScore) -> Table:
    rows = [
        {
            "parameter": f"{one.parameter}, {FIT_UNITS[one.parameter]}",
            "pull median": figures.small(one.pull_median),
            "pull width": figures.small(one.pull_width),
            "resolution": figures.small(one.resolution),
        }
        for one in fits.parameters
    ]
    tracks = figures.count_of(fits.tracks, "track")
    title = f"Fits: {figures.count(fits.converged)} of {tracks} converged"
    return table_of(title, rows, f"{figures.count(fits.judged)} {FITS_RULE}")


def _fit_plots(fits: FitScore) -> Plots:
    """Plots pull widths of all parameters, and the resolution of each, against pT and eta."""

    def curve(name: str, colour: int, bins: ParameterBins, what: str) -> Curve:
        middles = [(low + high) / 2 for low, high in pairwise(bins.edges)]
        values = getattr(bins, what)
        points = [(x, y) for x, y in zip(middles, values, strict=True) if y is not None]
        return Curve(name, points, colour)

    plots = []
    for axis in ("pt", "eta"):
        scale: Axis = "log" if axis in LOG_AXES else "linear"
        found = [(i, one, one.bins[axis]) for i, one in enumerate(fits.parameters)]
        widths = [curve(one.parameter, i, bins, "pull_width") for i, one, bins in found]
        plots.append(Plot("Pull widths", (metrics.AXES[axis], "width"), widths, x_axis=scale))
        plots += [
            Plot(
                f"Resolution of {one.parameter}",
                (metrics.AXES[axis], FIT_UNITS[one.parameter]),
                [curve(one.parameter, i, bins, "resolution")],
                x_axis=scale,
                y_axis="log",
            )
            for i, one, bins in found
        ]
    return Plots("Fits against pT and eta", plots, (FITS_RULE[0].upper() + FITS_RULE[1:],))


def _score_notes(record: ScoreRecord) -> Iterator[str]:
    yield criteria_note(record, record.trackml_score)
    known = sum(event.trackml_score is not None for event in record.events)
    if 0 < known < len(record.events):
        yield (
            f"The TrackML score is the mean over {known} of {len(record.events)} events; the truth "
            "of the others gives no weights."
        )
    if not any(match.n_particles for match in record.matching):
        yield metrics.NO_PARTICLES
    if n := record.events_without_tracks:
        yield (
            f"{n} of the events are not in the submission, and judged as events without a track."
            if record.colliderml
            else f"Not judged, since no tracks are given: {n} more of the events."
        )
