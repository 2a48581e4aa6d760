"""Loss and edge metrics of events, the same however they are cut."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bigtrk.errors import RankError
from bigtrk.parallel.collectives import gather_items
from bigtrk.parallel.routing import Router
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.tracks.edge_metrics import EdgeMetrics, edge_metrics, score_cuts, summarise_edges
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.evaluation.scoring import ScoredEvent, score_events
from bigtrk.training.losses.edge_losses import EdgeLoss, make_loss
from bigtrk.training.losses.loss import edge_scale, edge_truth
from bigtrk.training.settings import TrainingSettings


@dataclass(frozen=True)
class EventMetrics:
    """One event's loss and metrics; `event` is its number.

    log_pt_error: mean absolute error of log pT, None where it is not predicted or nowhere known.
    cuts: scores that keep most target edges, as `score_cuts` gives them.
    """

    event: int
    loss: float
    metrics: EdgeMetrics
    log_pt_error: float | None
    cuts: dict[str, float]


def measure(scored: ScoredEvent, settings: TrainingSettings, edge_loss: EdgeLoss) -> EventMetrics:
    """Computes loss and metrics of one scored event.

    Raises:
        RankError: it has no finite scores.
    """
    if not scored.logits.isfinite().all():
        raise RankError(
            f"rank {dist.get_rank()}: the scores of {scored.name} are not finite, as some "
            f"weights are not: lower optimizer.lr or set optimizer.gradient_clipping and resume "
            f"from the last checkpoint"
        )
    truth = edge_truth(scored.y, scored.weights, torch.ones_like(scored.y))
    truth = replace(truth, target=scored.is_target, pt=scored.pt)
    scale = edge_scale(truth, truth.counts, settings.class_balance)
    loss = edge_loss(scored.logits, truth, truth.counts, scale)
    metrics = edge_metrics(scored.logits, scored.y, scored.is_target, settings.edge_cut)
    cuts = score_cuts(torch.sigmoid(scored.logits), scored.is_target)
    return EventMetrics(scored.event, float(loss), metrics, _mean_error(scored.log_pt_error), cuts)


def _mean_error(errors: Tensor | None) -> float | None:
    if errors is None or errors.isnan().all():
        return None
    return float(errors.nanmean())


def summary(events: Sequence[EventMetrics]) -> MeanEdgeMetrics:
    """Makes the record of events' metrics (at least one event)."""
    errors = [event.log_pt_error for event in events if event.log_pt_error is not None]
    return MeanEdgeMetrics(
        loss=sum(event.loss for event in events) / len(events),
        log_pt_error=fmean(errors) if errors else None,
        cuts=_mean_cuts([event.cuts for event in events if event.cuts]),
        **asdict(summarise_edges([event.metrics for event in events])),
    )


def _mean_cuts(cuts: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(found[name] for found in cuts) for name in (cuts[0] if cuts else ())}


def validate(
    model: nn.Module,
    maker: BatchMaker,
    sources: list[EventSource],
    router: Router,
    settings: TrainingSettings,
) -> MeanEdgeMetrics:
    """Returns mean loss and metrics over `sources`, laid over ranks by `router`; the same on all
    ranks. Collective.
    """
    loss = make_loss(settings)
    scored = score_events(model, maker, sources, router)
    mine = [measure(event, settings, loss) for event in scored]
    events = [event for events in gather_items(mine) for event in events]
    # They are sorted, so that the sum does not depend on which rank had which event.
    return summary(sorted(events, key=lambda event: event.event))
