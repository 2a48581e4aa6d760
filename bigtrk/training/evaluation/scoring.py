"""Scores the E edges of whole events, and validates by these scores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bigtrk.errors import AGAINST_DIVERGENCE, RankError
from bigtrk.graphs.event_graph import Sector, second_ways
from bigtrk.graphs.sector import merge
from bigtrk.parallel.collectives import collective_device, gather_items, gather_rows, together
from bigtrk.parallel.routing import MicroStep, Router
from bigtrk.parallel.world import Groups
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.tracing import waiting
from bigtrk.tracks.edge_metrics import EdgeMetrics, edge_metrics, score_cuts, summarise_edges
from bigtrk.training.data.batch import Batch, BatchMaker, EdgePrediction, compute, edge_truth
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.loss import EdgeLoss, edge_scale, make_loss
from bigtrk.training.settings import TrainingSettings

_SECOND = 3  # added to the truth of an edge that metrics do not count


@dataclass(frozen=True)
class ScoredEvent:
    """The scores of event number `event`; edges are in the event's own order, however it was cut.

    y, is_target, counted [E] bool: of two edges that differ only in direction, one is counted.
    Others are [E] float64. weights: of the loss. pt (GeV), log_pt_error (absolute): None if not
    asked for or not predicted; NaN if not known. whole: the graph with truth, if it was asked for.
    """

    event: int
    name: str
    logits: Tensor
    y: Tensor
    is_target: Tensor
    counted: Tensor
    weights: Tensor
    pt: Tensor | None
    log_pt_error: Tensor | None
    whole: Sector | None


def score_events(
    model: nn.Module,
    maker: BatchMaker,
    sources: list[EventSource],
    router: Router,
    follow: Callable[[list[MicroStep]], Iterable[MicroStep]] = iter,
    whole: bool = False,
) -> Iterator[ScoredEvent]:
    """Scores every event. Of the ranks that share an event the first yields it, with the graph if
    `whole`. `follow` shows progress. Collective: all ranks must exhaust the iterator, and all raise
    InputError if an event cannot be read.
    """
    world = maker.world
    model.eval()
    for micro_step in follow(router.route(range(len(sources)))):
        assignment = micro_step[world.ranks.rank]
        share = together(partial(maker.exchanging, assignment, sources))
        n_ranks = assignment.ranks if assignment else 1
        with torch.no_grad():
            predicted = compute(model, share)
        sectors = [batch.sector for batch in share.batches]
        columns = [_columns(*one) for one in zip(share.batches, predicted, strict=True)]
        edges = stitched(sectors, columns, n_ranks, world.groups)
        name, has_pt = sectors[0].event, share.batches[0].truth.pt is not None
        # Free memory: the model's inputs are as large as the graph, and so are the sectors.
        del share, predicted, columns
        joined = _whole_event(sectors, n_ranks, world.groups) if whole else None
        del sectors
        if assignment is not None and assignment.part == 0:
            logits, code, weights, *others = edges.unbind(1)
            truth = code % _SECOND
            pt = others.pop(0) if has_pt else None
            yield ScoredEvent(
                event=assignment.event,
                name=name,
                logits=logits,
                y=truth > 0,
                is_target=truth > 1,
                counted=code < _SECOND,
                weights=weights,
                pt=pt,
                log_pt_error=others[0] if others else None,
                whole=joined,
            )
    model.train()


def _whole_event(sectors: list[Sector], n_ranks: int, groups: Groups) -> Sector | None:
    """Returns the whole event on the first of the ranks that share it, and None on the others."""
    if sectors[0].parts == 1:
        return sectors[0]
    if n_ranks == 1:
        return merge(sectors, part=0, parts=1)
    gathered: list[Any] | None = [None] * n_ranks if sectors[0].part == 0 else None
    with waiting():
        # Sectors are sent, not read again: a rank that failed to read would leave others waiting.
        dist.gather_object(sectors, gathered, group=groups[n_ranks], group_dst=0)
    if gathered is None:
        return None
    return merge([sector for held in gathered for sector in held], part=0, parts=1)


def _columns(batch: Batch, predicted: EdgePrediction) -> list[Tensor]:
    """Returns a sector's columns for `stitched`: logit, truth (0 false, 1 true, 2 target; 3 more if
    not counted in metrics), weight, pT if the loss reads it, error of log pT if predicted.
    """
    sector, logits = batch.sector, predicted.logits
    assert sector.y is not None
    second = second_ways(sector.edge_index, sector.node_id, sector.y)
    truth = sector.y.int() + batch.is_target.int() + _SECOND * second.int()
    columns = [logits, truth, batch.weights]
    if batch.truth.pt is not None:
        columns.append(batch.truth.pt)
    if predicted.log_pt is not None and batch.pt is not None:
        error = (predicted.log_pt - batch.pt.log_pt).abs()
        columns.append(torch.where(batch.pt.known, error, torch.nan))
    return columns


def stitched(
    sectors: Sequence[Sector], columns: Sequence[Sequence[Tensor]], n_ranks: int, groups: Groups
) -> Tensor:
    """Joins the sectors' columns from the `n_ranks` ranks that share an event. Returns [E, columns]
    float64 for all its edges, in order of edge id. Collective among these ranks.
    """
    known = []
    for sector, of_sector in zip(sectors, columns, strict=True):
        owned = [sector.edge_id, *(column.cpu() for column in of_sector)]
        whole = sector.parts == 1
        known.append(owned if whole else [column[sector.owns_edge] for column in owned])
    if n_ranks > 1:
        group = groups[n_ranks]
        rows = torch.cat([torch.stack([c.double() for c in owned], dim=1) for owned in known])
        known = [[*gather_rows(rows.to(collective_device(group)), group).cpu().unbind(1)]]
    edges = torch.empty(sectors[0].event_edges, len(columns[0]), dtype=torch.float64)
    for ids, *values in known:
        for column, value in zip(edges.unbind(1), values, strict=True):
            column[ids.long()] = value.double()
    return edges


@dataclass(frozen=True)
class EventMetrics:
    """An event's loss and metrics. log_pt_error: mean absolute error of log pT; None if unknown."""

    event: int
    loss: float
    metrics: EdgeMetrics
    log_pt_error: float | None
    cuts: dict[str, float]


def measure(scored: ScoredEvent, settings: TrainingSettings, edge_loss: EdgeLoss) -> EventMetrics:
    """Computes an event's loss and metrics; RankError if a score or the loss is not finite."""
    truth = edge_truth(scored.y, scored.weights, torch.ones_like(scored.y))
    truth = replace(truth, target=scored.is_target, pt=scored.pt)
    scale = edge_scale(truth, truth.counts, settings.class_balance)
    loss = edge_loss(scored.logits, truth, truth.counts, scale)
    errors = scored.log_pt_error
    wrong = errors is not None and bool(errors.isinf().any())  # unknown ones are NaN
    if wrong or not (scored.logits.isfinite().all() and loss.isfinite()):
        raise RankError(
            f"rank {dist.get_rank()}: the scores or the loss of {scored.name} are not finite; "
            f"{AGAINST_DIVERGENCE}"
        )
    every = scored.logits, scored.y, scored.is_target
    logits, y, is_target = (column[scored.counted] for column in every)
    metrics = edge_metrics(logits, y, is_target, settings.edge_cut)
    cuts = score_cuts(torch.sigmoid(logits), is_target)
    error = None if errors is None or errors.isnan().all() else float(errors.nanmean())
    return EventMetrics(scored.event, float(loss), metrics, error, cuts)


def summary(events: Sequence[EventMetrics]) -> MeanEdgeMetrics:
    """Averages the metrics of events (at least one) into a record."""
    errors = [event.log_pt_error for event in events if event.log_pt_error is not None]
    cuts = [event.cuts for event in events if event.cuts]
    known = {
        "loss": sum(event.loss for event in events) / len(events),
        "log_pt_error": fmean(errors) if errors else None,
        "cuts": {name: fmean(found[name] for found in cuts) for name in (cuts[0] if cuts else ())},
    }
    return summarise_edges([event.metrics for event in events]).model_copy(update=known)


def validate(
    model: nn.Module,
    maker: BatchMaker,
    sources: list[EventSource],
    router: Router,
    settings: TrainingSettings,
) -> MeanEdgeMetrics:
    """Returns mean loss and metrics over `sources`, the same on all ranks. Collective."""
    loss = make_loss(settings)
    scored = score_events(model, maker, sources, router)
    mine = [measure(event, settings, loss) for event in scored]
    events = [event for events in gather_items(mine) for event in events]
    # Events are sorted, so that the sum does not depend on which rank had which event.
    return summary(sorted(events, key=lambda event: event.event))
