"""A sector made ready for the model: features chosen and normalised, truth derived."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.edge_pt import edge_log_pt, edge_pt
from bigtrk.graphs.features import check_finite
from bigtrk.graphs.sector import Sector, empty_sector
from bigtrk.graphs.target import edge_weights, target_edges
from bigtrk.models.protocol import Exchange, Model, check_edges, no_exchange
from bigtrk.parallel.halo import halo_plan
from bigtrk.parallel.routing import Assignment
from bigtrk.parallel.world import World
from bigtrk.records.run import MeasuredScales
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.data.model_features import NOTHING_MEASURED, load_features
from bigtrk.training.losses.loss import EdgeTruth, PtTruth, edge_truth, pt_truth
from bigtrk.training.settings import Configuration
from bigtrk.user_code import names_code

FALSE = -30.0  # the logit of an edge that is not computed: a score of 1e-13


@dataclass(frozen=True)
class Batch:
    """The part of a step that one rank computes in one micro-step.

    x [N, F], edge_features [E, G] float32 (normalised), edge_index [2, E] of the sector's first
    nodes and edges: all of them but for naive sectors, or of the edges that were chosen to train.
    `is_target` [E] and, in the loss, `weights` [E], both before masking (for metrics); `pt` is None
    without its loss; `event` numbers the event, None for an empty sector. The first `n_owned` nodes
    are updated here, the others by the ranks that `exchange` asks.
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
    exchange: Exchange


class EdgePrediction(NamedTuple):
    """Predictions for a sector's edges: logits [E], log_pt [E] (of GeV; None if not predicted)."""

    logits: Tensor
    log_pt: Tensor | None


def run_model(model: Model, batch: Batch) -> Tensor:
    """Runs the model on what it computes of a batch's sector."""
    return model(batch.x, batch.edge_features, batch.edge_index, batch.n_owned, batch.exchange)


def compute(model: Model, batch: Batch) -> EdgePrediction:
    """Computes an edge model's results for a batch's sector.

    Edges that the batch leaves out come last in their sector, and score false.
    """
    made = run_model(model, batch)
    n_edges = len(batch.truth.label)
    if made.dim() == 1:
        return EdgePrediction(_filled(made, n_edges, FALSE), None)
    logits, log_pt = made.unbind(1)
    return EdgePrediction(_filled(logits, n_edges, FALSE), _filled(log_pt, n_edges, 0.0))


def _filled(values: Tensor, n_edges: int, value: float) -> Tensor:
    return torch.cat([values, values.new_full((n_edges - len(values),), value)])


class BatchMaker:
    """Reads events, or a rank's part of them, and makes batches on the device of `world`.

    measured: the scales of features that have none of their own.

    Raises:
        InputError: a function of the user's own cannot be imported.
    """

    def __init__(
        self,
        configuration: Configuration,
        world: World,
        measured: MeasuredScales = NOTHING_MEASURED,
    ) -> None:
        self.world = world
        self._data = configuration.data
        self._features = load_features(configuration.data, measured)
        self._target = configuration.target
        self._has_pt = configuration.training.pt_weight > 0
        self._loss_is_own = names_code(configuration.training.loss)
        self._pairs = configuration.pairs if configuration.model.kind == "hit" else None

    def make(self, assignment: Assignment | None, sources: list[EventSource]) -> Batch:
        """Reads and prepares the `assignment` among `sources`, which exchanges halos with the
        event's other parts; an empty sector for no assignment.

        Raises:
            InputError: the event cannot be read, has no truth, features that are not finite or
                edges that do not end at its nodes.
        """
        if assignment is None:
            return self.empty()
        sector = sources[assignment.event].read(assignment.part, assignment.parts)
        return self._prepare(assignment.event, sector, self._exchange(sector))

    def of(self, sources: list[EventSource]) -> Callable[[Assignment | None], Batch]:
        """Gives `make` for assignments among `sources`."""
        return lambda assignment: self.make(assignment, sources)

    def alone(self, event: int, sector: Sector) -> Batch:
        """Prepares a sector of event number `event` that is trained without the event's others.

        Its halo, unless left out, is updated as far as its edges here allow.
        """
        return self._prepare(event, sector, None)

    def empty(self) -> Batch:
        """Makes a batch that only takes part."""
        names = tuple(self._data.node_features), tuple(self._data.edge_features)
        return self._prepare(None, empty_sector(*names), None)

    def whole(self, event: int, sources: list[EventSource]) -> Batch:
        """Reads and prepares a whole event."""
        return self.make(Assignment(event, part=0, parts=1, first_rank=0), sources)

    def _check(self, sector: Sector) -> None:
        """Refuses what would give a wrong result, or none, before it is computed."""
        try:
            check_edges(sector.edge_index, sector.n_nodes)
        except IndexError as error:
            raise InputError(f"{sector.event}: {error}; build its graph again") from None
        nodes = sector.node_features, sector.node_feature_names, sector.node_id
        check_finite(f"{sector.event}: node", self._data.node_features, *nodes)
        edges = sector.edge_features, sector.edge_feature_names, sector.edge_id
        check_finite(f"{sector.event}: edge", self._data.edge_features, *edges)

    def _prepare(self, event: int | None, sector: Sector, exchange: Exchange | None) -> Batch:
        device = self.world.device
        if sector.y is None:
            raise InputError(
                f"{sector.event}: has no truth; build its graph from events with truth"
            )
        self._check(sector)
        is_target = target_edges(
            sector.y, sector.edge_index, sector.particle_id, sector.particles, self._target
        )
        weights = edge_weights(sector.y, is_target, self._target)
        n_nodes, n_edges = self._computed(sector)
        computed = torch.arange(sector.n_edges) < n_edges
        counted = sector.owns_edge & computed
        truth = self._truth(sector.y, weights, counted, n_nodes)
        if self._loss_is_own:
            pt = edge_pt(sector.y, sector.edge_index, sector.particle_id, sector.particles)
            truth = replace(truth, target=is_target, pt=pt)
        features = self._features
        read = features.computed.of(sector)
        return Batch(
            event=event,
            sector=sector,
            x=features.of_nodes(read)[:n_nodes].to(device),
            edge_features=features.of_edges(read)[:n_edges].to(device),
            edge_index=sector.edge_index[:, :n_edges].to(device),
            n_owned=sector.n_owned if exchange else n_nodes,
            is_target=is_target,
            weights=weights,
            truth=truth.to(device),
            pt=self._pt(sector, counted) if self._has_pt else None,
            exchange=exchange or no_exchange,
        )

    def _truth(self, y: Tensor, weights: Tensor, counted: Tensor, n_nodes: int) -> EdgeTruth:
        """Derives the truth; to an embedding the false pairs that will be drawn are negatives."""
        truth = edge_truth(y, weights, counted)
        if self._pairs is None:
            return truth
        negatives = self._pairs.false_pairs(n_nodes)
        return replace(truth, counts=torch.stack([truth.counts[0], torch.tensor(negatives)]))

    def _pt(self, sector: Sector, counted: Tensor) -> PtTruth:
        assert sector.y is not None
        log_pt = edge_log_pt(sector.y, sector.edge_index, sector.particle_id, sector.particles)
        return pt_truth(log_pt, counted, self.world.device)

    def _computed(self, sector: Sector) -> tuple[int, int]:
        """Counts the sector's first nodes and edges that the model computes."""
        if self._data.sectors == "halo":
            return sector.n_nodes, sector.n_edges
        inside = (sector.edge_index < sector.n_owned).all(dim=0)
        return sector.n_owned, int(inside.sum())

    def _exchange(self, sector: Sector) -> Exchange | None:
        if sector.parts == 1 or self._data.sectors == "naive":
            return None
        return halo_plan(sector, self.world)
