"""Sectors made ready for the model: features chosen and normalised, truth derived."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.features import check_finite
from bigtrk.graphs.sector import Sector, empty_sector
from bigtrk.graphs.target import edge_log_pt, edge_pt, edge_weights, target_edges
from bigtrk.models.protocol import check_edges
from bigtrk.parallel.halo import halo_plan, no_halo
from bigtrk.parallel.routing import Assignment
from bigtrk.parallel.world import World
from bigtrk.records.run import MeasuredScales
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.data.input_files import InputFiles
from bigtrk.training.data.model_features import NOTHING_MEASURED, load_features
from bigtrk.training.data.share import Batch, Share
from bigtrk.training.data.upload import uploaded
from bigtrk.training.losses.loss import EdgeTruth, PtTruth, edge_truth, pt_truth
from bigtrk.training.settings import Configuration
from bigtrk.user_code import names_code


class BatchMaker:
    """Reads events, or a rank's share of them, and makes batches on the device of `world`.

    measured: the scales of features that have none of their own. files: where batches are kept; in
    memory if None.

    Raises:
        InputError: a function of the user's own cannot be imported.
    """

    def __init__(
        self,
        configuration: Configuration,
        world: World,
        measured: MeasuredScales = NOTHING_MEASURED,
        files: InputFiles | None = None,
    ) -> None:
        self.world = world
        self._files = files
        self._data = configuration.data
        self._features = load_features(configuration.data, measured)
        self._target = configuration.target
        self._has_pt = configuration.training.pt_weight > 0
        self._loss_is_own = names_code(configuration.training.loss)
        self._pairs = configuration.pairs if configuration.model.kind == "hit" else None

    def make(self, assignment: Assignment | None, sources: list[EventSource]) -> Share:
        """Reads and prepares the `assignment` among `sources` to train it: sectors exchange halos
        with each other and with the event's others, unless they are naive. An empty sector for no
        assignment.

        Raises:
            InputError: the event cannot be read, has no truth, features that are not finite or
                edges that do not end at its nodes.
        """
        if assignment is not None and self._data.sectors == "naive":
            [part] = assignment.held
            sector = sources[assignment.event].read(part, assignment.parts)
            return self._alone(assignment.event, sector)
        return self.exchanging(assignment, sources)

    def exchanging(self, assignment: Assignment | None, sources: list[EventSource]) -> Share:
        """Reads and prepares an assignment as `make`, to score it: also sectors that are trained
        without each other exchange halos, so that the scores are those of the whole graph, on
        however many ranks.

        Raises:
            InputError: as of `make`.
        """
        if assignment is None:
            return self.empty()
        source = sources[assignment.event]
        sectors = self._read(assignment, source)
        if assignment.parts == 1:
            return self._alone(assignment.event, sectors[0])
        plan = halo_plan(sectors, assignment.ranks, self.world)
        return Share([self._prepare(assignment.event, one, True) for one in sectors], plan)

    def _read(self, assignment: Assignment, source: EventSource) -> list[Sector]:
        """Reads the sectors of an assignment, with no more than one on its way to the files."""
        if self._files is None:
            return source.read_several(assignment.held, assignment.parts)
        # A name would keep a sector until the next one is read. Opening the file for each of 128
        # sectors takes 16 ms, beside passes of seconds.
        return [self._files.moved(source.read(part, assignment.parts)) for part in assignment.held]

    def of(self, sources: list[EventSource]) -> Callable[[Assignment | None], Share]:
        """Gives `make` for assignments among `sources`."""
        return lambda assignment: self.make(assignment, sources)

    def alone(self, event: int, sector: Sector) -> Share:
        """Prepares a sector of event number `event` that is trained without the event's others.

        Its halo, unless left out, is updated as far as its edges here allow.
        """
        return self._alone(event, sector)

    def empty(self) -> Share:
        """Makes a share that only takes part."""
        names = tuple(self._data.node_features), tuple(self._data.edge_features)
        return self._alone(None, empty_sector(*names))

    def whole(self, event: int, sources: list[EventSource]) -> Share:
        """Reads and prepares a whole event."""
        return self.make(Assignment(event, (0,), parts=1, first_rank=0), sources)

    def _alone(self, event: int | None, sector: Sector) -> Share:
        return Share([self._prepare(event, sector, False)], no_halo(self.world))

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

    def _prepare(self, event: int | None, sector: Sector, exchanges: bool) -> Batch:
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
        n_nodes, n_edges = self._computed(sector, exchanges)
        computed = torch.arange(sector.n_edges) < n_edges
        counted = sector.owns_edge & computed
        truth = self._truth(sector.y, weights, counted, n_nodes)
        if self._loss_is_own:
            pt = edge_pt(sector.y, sector.edge_index, sector.particle_id, sector.particles)
            truth = replace(truth, target=is_target, pt=pt)
        features = self._features
        read = features.computed.of(sector)
        batch = Batch(
            event=event,
            sector=sector,
            x=uploaded(features.of_nodes(read)[:n_nodes], device),
            edge_features=uploaded(features.of_edges(read)[:n_edges], device),
            edge_index=uploaded(sector.edge_index[:, :n_edges], device),
            n_owned=sector.n_owned if exchanges else n_nodes,
            is_target=is_target,
            weights=weights,
            truth=truth.to(device),
            pt=self._pt(sector, counted) if self._has_pt else None,
        )
        return self._files.moved(batch) if self._files else batch

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

    def _computed(self, sector: Sector, exchanges: bool) -> tuple[int, int]:
        """Counts the sector's first nodes and edges that the model computes."""
        if exchanges or self._data.sectors == "halo":
            return sector.n_nodes, sector.n_edges
        inside = (sector.edge_index < sector.n_owned).all(dim=0)
        return sector.n_owned, int(inside.sum())
