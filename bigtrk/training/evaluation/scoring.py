"""Events scored by a model over all ranks, whole or in sectors, and stitched together again.

Shapes: E edges of one event.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bigtrk.graphs.sector import Sector
from bigtrk.graphs.sector_merge import merge
from bigtrk.parallel.collectives import collective_device, gather_rows, together
from bigtrk.parallel.groups import BlockGroups
from bigtrk.parallel.routing import MicroStep
from bigtrk.tracing import waiting
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.data.share import Batch, EdgePrediction, Share, compute
from bigtrk.training.steps.routers import scoring_router


@dataclass(frozen=True)
class ScoredEvent:
    """Event number `event` with its edges in the event's own order, however it was cut.

    logits [E] float64, y [E] bool, is_target [E] bool, weights [E] float64 (in the loss), pt [E]
    float64 (GeV, NaN where not known; None where the loss does not read it), log_pt_error [E]
    float64 (absolute, NaN where the pT is not known; None from a model without it); `sector` is
    this rank's part of the event, or all of it where that was asked for.
    """

    event: int
    logits: Tensor
    y: Tensor
    is_target: Tensor
    weights: Tensor
    pt: Tensor | None
    log_pt_error: Tensor | None
    sector: Sector


def score_events(
    model: nn.Module,
    maker: BatchMaker,
    sources: list[EventSource],
    follow: Callable[[list[MicroStep]], Iterable[MicroStep]] = iter,
    whole: bool = False,
) -> Iterator[ScoredEvent]:
    """Scores every event; each comes out on one rank, the first of those that share it, which also
    gets the others' sectors of it if it is to be `whole`.

    Collective: all ranks must exhaust the iterator. `follow` wraps the micro-steps to show
    progress.

    Raises:
        InputError: on all ranks, an event cannot be read.
    """
    world = maker.world
    router = scoring_router(sources, world.ranks.world_size)
    model.eval()
    for micro_step in follow(router.route(range(len(sources)))):
        assignment = micro_step[world.ranks.rank]
        share = together(partial(maker.make, assignment, sources))
        [batch] = share.batches
        edges = _stitch(batch, _predicted(model, share), world.groups)
        sector, has_pt = batch.sector, batch.truth.pt is not None
        del share, batch  # what the model read is as large as the graph
        sector = _joined(sector, world.groups) if whole else sector
        if assignment is not None and assignment.part == 0:
            logits, truth, weights, *others = edges.unbind(1)
            pt = others.pop(0) if has_pt else None
            yield ScoredEvent(
                event=assignment.event,
                logits=logits,
                y=truth > 0,
                is_target=truth > 1,
                weights=weights,
                pt=pt,
                log_pt_error=others[0] if others else None,
                sector=sector,
            )
    model.train()


def _joined(sector: Sector, groups: BlockGroups) -> Sector:
    """Gives the first of the ranks that share an event all of it, the others their own sector."""
    if sector.parts == 1:
        return sector
    sectors: list[Any] | None = [None] * sector.parts if sector.part == 0 else None
    with waiting():
        # They are sent, not read again: a rank that alone fails to read would leave others waiting.
        dist.gather_object(sector, sectors, group=groups.of_size(sector.parts), group_dst=0)
    return sector if sectors is None else merge(sectors, part=0, parts=1)


@torch.no_grad()
def _predicted(model: nn.Module, share: Share) -> EdgePrediction:
    return compute(model, share)[0]


def _stitch(batch: Batch, predicted: EdgePrediction, groups: BlockGroups) -> Tensor:
    """Returns logit, truth (0 false, 1 true, 2 target), weight and, if the loss reads it, pT and,
    if it is predicted, the error of its log, of every edge of the event by edge id: [E, 3 to 5]
    float64.
    """
    sector, logits = batch.sector, predicted.logits
    assert sector.y is not None
    truth = sector.y.int() + batch.is_target.int()
    columns = [logits, truth, batch.weights]
    if batch.truth.pt is not None:
        columns.append(batch.truth.pt)
    if predicted.log_pt is not None and batch.pt is not None:
        error = (predicted.log_pt - batch.pt.log_pt).abs()
        columns.append(torch.where(batch.pt.known, error, torch.nan))
    return stitched(sector, columns, groups)


def stitched(sector: Sector, columns: Sequence[Tensor], groups: BlockGroups) -> Tensor:
    """Joins `columns` [edges of the sector] of the ranks that share an event: those of all its
    edges by edge id, [E, len(columns)] float64. Collective among these ranks.
    """
    ids, values = sector.edge_id, [column.cpu() for column in columns]
    if sector.parts > 1:
        group = groups.of_size(sector.parts)
        rows = torch.stack([column.double() for column in (ids, *values)], dim=1)[sector.owns_edge]
        ids, *values = gather_rows(rows.to(collective_device(group)), group).cpu().unbind(1)
    edges = torch.empty(sector.event_edges, len(columns), dtype=torch.float64)
    for column, value in zip(edges.unbind(1), values, strict=True):
        column[ids.long()] = value.double()
    return edges
