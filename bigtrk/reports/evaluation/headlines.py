"""The numbers of an evaluation that count, and what limits its tracks."""

from bigtrk.records.evaluation import EvaluationRecord, Judged, TrackRecord
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.first_screen import Headline, ratio
from bigtrk.reports.elements.metric_columns import DENOMINATORS
from bigtrk.reports.evaluation.tables import BUDGET

GRAPH = ("no_true_edges", "too_few_true_edges")
MODEL = ("true_edges_cut", "merged")


def edge_headlines(metrics: MeanEdgeMetrics) -> list[Headline]:
    """Lists efficiency, purity and AUC of edges, as far as they are known."""
    shares = [
        headline
        for name in ("efficiency", "purity")
        for headline in ratio(f"edge {name}", getattr(metrics, name), DENOMINATORS[name](metrics))
    ]
    return [*shares, *ratio("AUC of edges", metrics.auc, None)]


def track_headlines(tracks: Judged) -> list[Headline]:
    """Lists efficiency and fakes in the loss budget's style and mode, and the TrackML score."""
    known = [match for match in tracks.matching if (match.style, match.mode) == BUDGET]
    shares = [
        headline
        for match in known
        for headline in (
            *ratio("track efficiency", match.efficiency, match.n_particles),
            *ratio("fake tracks", match.fake_rate, match.n_tracks),
        )
    ]
    score = tracks.trackml_score
    return [*shares, *([] if score is None else [Headline("TrackML score", f"{score:.4f}")])]


def evaluation_headlines(record: EvaluationRecord) -> list[Headline]:
    """Lists the numbers of tracks, where they were judged, before those of edges."""
    tracks = track_headlines(record.tracks) if record.tracks else []
    return [*tracks, *edge_headlines(record.edge_metrics)]


def evaluation_verdict(record: EvaluationRecord) -> list[str]:
    """Says what limits the tracks, and what speaks against the numbers."""
    verdict = [track_limit(record.tracks)] if record.tracks else [NOT_JUDGED]
    if record.events_trained_on:
        verdict.append(
            f"The model was trained on {record.events_trained_on} of these {record.events} events: "
            "evaluate it on others."
        )
    return verdict


NOT_JUDGED = "No tracks were judged: 'bigtrk evaluate RUN DATA --tracks' says what limits them."


def track_limit(tracks: TrackRecord) -> str:
    """Says whether the graph or the model loses more of the particles to be found."""
    losses, total = tracks.losses, sum(tracks.losses.values())
    if not total:
        return "What limits the tracks is not known: there are no particles to be found."
    graph, model = (sum(losses.get(name, 0) for name in names) for names in (GRAPH, MODEL))
    if not graph + model:
        return f"Nothing limits the tracks: all {figures.count(total)} particles are found."
    cut, merged = (_of_hundred(losses.get(name, 0), total) for name in MODEL)
    of_model = f"the model loses {_of_hundred(model, total)} ({cut} by edges cut, {merged} merged)"
    of_graph = f"the graph {_of_hundred(graph, total)}"
    which = "model" if model >= graph else "graph"
    return f"The {which} limits the tracks: of 100 particles {of_model}, {of_graph}."


def _of_hundred(part: int, total: int) -> str:
    return f"{100 * part / total:.1f}"
