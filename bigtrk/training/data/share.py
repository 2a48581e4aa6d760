"""A rank's share of an event in one micro-step: its sectors as the model reads them, with truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bigtrk.graphs.sector import Sector
from bigtrk.models.protocol import OfOneSector, SectorInputs
from bigtrk.parallel.halo import HaloPlan
from bigtrk.training.losses.loss import EdgeTruth, PtTruth

FALSE = -30.0  # the logit of an edge that is not computed: a score of 1e-13


@dataclass(frozen=True)
class Batch:
    """A sector of a share.

    x [N, F], edge_features [E, G] float32 (normalised), edge_index [2, E] of the sector's first
    nodes and edges: all of them but for naive sectors in training, or of the edges that were chosen
    to train.
    `is_target` [E] and, in the loss, `weights` [E], both before masking (for metrics); `pt` is None
    without its loss; `event` numbers the event, None for an empty sector. The first `n_owned` nodes
    are updated here, the others by the share's exchange.
    """

    event: int | None
    sector: Sector
    x: Tensor
    edge_features: Tensor
    edge_index: Tensor
    n_owned: int
    is_target: Tensor
    weights: Tensor
    truth: EdgeTruth
    pt: PtTruth | None

    @property
    def inputs(self) -> SectorInputs:
        """Returns what the model computes of the sector."""
        return SectorInputs(self.x, self.edge_features, self.edge_index, self.n_owned)


@dataclass(frozen=True)
class Share:
    """The sectors of one event that a rank computes together, layer by layer, and the exchange of
    rows among them and with other ranks'; at least one, which is empty on a rank without an event.
    """

    batches: Sequence[Batch]
    exchange: HaloPlan

    @property
    def event(self) -> int | None:
        return self.batches[0].event

    def padded(self, empty: Batch, n: int) -> "Share":
        """Appends `n` sectors that are `empty`."""
        return Share([*self.batches, *[empty] * n], self.exchange.with_empty(n))


class EdgePrediction(NamedTuple):
    """Predictions for a sector's edges: logits [E], log_pt [E] (of GeV; None if not predicted)."""

    logits: Tensor
    log_pt: Tensor | None


def run_model(model: nn.Module, share: Share) -> list[Tensor]:
    """Runs the model once on what it computes of a share; gives its result for each sector.

    Models of the simple form take one sector, which is all that is routed to them.
    """
    inputs = [batch.inputs for batch in share.batches]
    if len(inputs) == 1:
        return [model(*inputs[0], OfOneSector(share.exchange))]
    made: list[Tensor] = model(inputs, share.exchange)
    return made


def compute(model: nn.Module, share: Share) -> list[EdgePrediction]:
    """Computes an edge model's results for each sector of a share.

    Edges that a batch leaves out come last in its sector, and score false.
    """
    made = run_model(model, share)
    return [_prediction(rows, batch) for rows, batch in zip(made, share.batches, strict=True)]


def _prediction(made: Tensor, batch: Batch) -> EdgePrediction:
    n_edges = len(batch.truth.label)
    if made.dim() == 1:
        return EdgePrediction(_filled(made, n_edges, FALSE), None)
    logits, log_pt = made.unbind(1)
    return EdgePrediction(_filled(logits, n_edges, FALSE), _filled(log_pt, n_edges, 0.0))


def _filled(values: Tensor, n_edges: int, value: float) -> Tensor:
    return torch.cat([values, values.new_full((n_edges - len(values),), value)])
