"""Loss and edge metrics of events, whole or in sectors, over all ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bigtrk.parallel.collectives import gather_items, gather_rows
from bigtrk.parallel.groups import BlockGroups
from bigtrk.parallel.routing import Share, route
from bigtrk.tracks.edge_metrics import EdgeMetrics, edge_metrics, mean_over_events
from bigtrk.training.batch import Batch, BatchMaker, compute
from bigtrk.training.event_source import EventSource
from bigtrk.training.loss import edge_loss, edge_scale, edge_truth
from bigtrk.training.settings import TrainingSettings


@dataclass(frozen=True)
class EventScore:
    """One event's loss and metrics; `event` is its number."""

    event: int
    loss: float
    metrics: EdgeMetrics


def score_event(
    event: int, logits: Tensor, y: Tensor, weights: Tensor, settings: TrainingSettings
) -> EventScore:
    """Score one whole event's edges, in any order: logits, y, weights [E] each."""
    truth = edge_truth(y, weights, torch.ones_like(y))
    scale = edge_scale(truth, truth.counts, settings.class_balance)
    loss = edge_loss(logits.double(), truth.label, scale)
    metrics = edge_metrics(logits, y, weights, settings.edge_cut)
    return EventScore(event, float(loss), metrics)


def summary(scores: Sequence[EventScore]) -> dict[str, float | None]:
    """Means over events, by the names of the run record."""
    loss = sum(score.loss for score in scores) / len(scores)
    return {"loss": loss, **mean_over_events([score.metrics for score in scores])}


@torch.no_grad()
def validate(
    model: nn.Module,
    maker: BatchMaker,
    groups: BlockGroups,
    sources: list[EventSource],
    settings: TrainingSettings,
) -> dict[str, float | None]:
    """Mean loss and metrics over `sources`; the same on all ranks, however events are cut.

    Collective.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    stored = [source.parts for source in sources]
    mine: list[EventScore] = []
    model.eval()
    for micro_step in route(range(len(sources)), stored, world_size):
        share = micro_step[rank]
        batch = maker.make(share, sources)
        edges = _whole_event(share, batch, compute(model, batch), groups)
        if share is not None and share.part == 0:
            logits, y, weights = edges.unbind(1)
            mine.append(score_event(share.event, logits, y > 0, weights, settings))
    model.train()
    scores = [score for scores in gather_items(mine) for score in scores]
    return summary(sorted(scores, key=lambda score: score.event))


def _whole_event(share: Share | None, batch: Batch, logits: Tensor, groups: BlockGroups) -> Tensor:
    """Logit, label and weight of every edge of the event, each once: [event edges, 3] float64."""
    sector = batch.sector
    assert sector.y is not None
    columns = torch.stack([logits.cpu().double(), sector.y.double(), batch.weights.double()], dim=1)
    owned = columns[sector.owns_edge]
    if share is None or share.parts == 1:
        return owned
    return gather_rows(owned.to(logits.device), groups.of_size(share.parts)).cpu()
