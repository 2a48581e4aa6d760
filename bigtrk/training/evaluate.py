"""A trained model's edge metrics and tracks, event by event, on one process."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bigtrk.console import follow
from bigtrk.files import write_json
from bigtrk.parallel.ranks import discover, share_cores
from bigtrk.tracks.evaluation import EventTracks, TrackOptions, score_tracks, summarise_tracks
from bigtrk.training.batch import BatchMaker, compute
from bigtrk.training.event_source import EventSource, open_events
from bigtrk.training.model_files import load_model, trained_on
from bigtrk.training.settings import Configuration
from bigtrk.training.validation import EventScore, score_event, summary


@dataclass(frozen=True)
class _Evaluated:
    score: EventScore
    tracks: EventTracks | None


def evaluate_run(run: Path, data: Path, options: TrackOptions | None) -> dict[str, Any]:
    """Evaluate the model of `run` on the events of `data`; also writes RUN/evaluation.json.

    Events that the run trained on are left out, unless no others are there.

    Raises:
        InputError: the run has no model yet, or the data cannot be read or have no truth.
    """
    ranks = discover()
    share_cores(ranks)
    model, configuration = load_model(run)
    model.to(ranks.device).eval()
    sources, seen = _unseen(open_events([data]), trained_on(run))
    maker = BatchMaker(configuration, ranks.device)
    events = [
        _evaluate(model, maker, sources, index, configuration, options)
        for index in follow(range(len(sources)), len(sources), "evaluate")
    ]
    tracks = [event.tracks for event in events if event.tracks is not None]
    evaluation = {
        "data": str(data),
        "events": len(events),
        "events_trained_on": seen,
        "edges": sum(event.score.metrics.n_edges for event in events),
        "edge_metrics": summary([event.score for event in events]),
        "tracks": summarise_tracks(tracks, options) if options else None,
    }
    write_json(run / "evaluation.json", evaluation)
    return evaluation


def _unseen(sources: list[EventSource], trained: set[str]) -> tuple[list[EventSource], int]:
    """The events to evaluate, and how many of them were trained on."""
    unseen = [source for source in sources if source.identity not in trained]
    return (unseen, 0) if unseen else (sources, len(sources))


@torch.no_grad()
def _evaluate(
    model: nn.Module,
    maker: BatchMaker,
    sources: list[EventSource],
    index: int,
    configuration: Configuration,
    options: TrackOptions | None,
) -> _Evaluated:
    batch = maker.whole(index, sources)
    logits = compute(model, batch).cpu()
    sector = batch.sector
    assert sector.y is not None
    score = score_event(index, logits, sector.y, batch.weights, configuration.training)
    if options is None:
        return _Evaluated(score, None)
    return _Evaluated(score, score_tracks(sector, torch.sigmoid(logits), options))
