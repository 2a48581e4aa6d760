"""A step's batches: sectors as tensors on a rank's device, read one step ahead."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import (
    IN_ORDER,
    Sector,
    Target,
    edge_pt,
    edge_weights,
    empty_sector,
    once,
    target_edges,
)
from bigtrk.graphs.features import (
    FROM_POSITIONS,
    SCALES,
    ComputedFeatures,
    Rows,
    Scale,
    StoredColumns,
    check_finite,
    load_functions,
    normalised,
    with_columns,
)
from bigtrk.models.edges.triton_passes import ORDERED
from bigtrk.models.protocol import CHECKED, OfOneSector, SectorInputs, check_edges, no_exchange
from bigtrk.parallel.collectives import together
from bigtrk.parallel.halo import HaloPlan, halo_plan, no_halo
from bigtrk.parallel.routing import Assignment, MicroStep
from bigtrk.parallel.world import World
from bigtrk.process import Prefetcher, uploaded
from bigtrk.records.run import MeasuredScales
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.data.input_files import InputFiles, tensors_in
from bigtrk.training.settings import Configuration, DataSettings
from bigtrk.user_code import names_code

Item = TypeVar("Item")

FALSE = -30.0  # the logit of an edge that is not computed: a score of 1e-13

NOTHING_MEASURED = MeasuredScales()
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class ModelFeatures:
    """Reads the features named in `data`, scaled by bigtrk's constants or `measured` scales."""

    data: DataSettings
    computed: ComputedFeatures
    measured: MeasuredScales = field(default=NOTHING_MEASURED)

    def of_nodes(self, sector: Sector, device: torch.device = _CPU) -> Tensor:
        """Returns a sector's scaled node features [N, F] on `device`; InputError if the sector
        lacks a column.
        """
        stored, names = sector.node_features, sector.node_feature_names
        chosen, scales = self.data.node_features, self.measured.nodes
        return _scaled(stored, names, scales, chosen, sector.event, device)

    def of_edges(self, sector: Sector, device: torch.device = _CPU) -> Tensor:
        """Returns a sector's scaled edge features [E, G] on `device`; raises as of_nodes."""
        chosen, features = self.data.edge_features, sector.edge_features
        names = sector.edge_feature_names if chosen else ()
        stored = features if chosen else features[:, :0]
        return _scaled(stored, names, self.measured.edges, chosen, sector.event, device)

    def of_hits(self, hits: StoredColumns, what: str, ids: Tensor) -> Tensor:
        """Returns features [N, F] of hits without a graph; raises as of_nodes. what: names them."""
        columns = with_columns(hits.features, self.computed.nodes, Rows(what, (hits,), ids))
        names = (*hits.names, *self.computed.nodes)
        scales: dict[str, Scale] = {**self.measured.nodes, **SCALES}
        return normalised(columns, names, scales, self.data.node_features)


def load_features(data: DataSettings, measured: MeasuredScales = NOTHING_MEASURED) -> ModelFeatures:
    """Returns the features of `data`; InputError if a user's function cannot be imported."""
    nodes = load_functions(data.node_features, "data.node_features")
    edges = load_functions(data.edge_features, "data.edge_features")
    of_positions = [name for name in FROM_POSITIONS if name in data.edge_features]
    return ModelFeatures(data, ComputedFeatures(nodes, edges, of_positions), measured)


def _scaled(
    stored: Tensor,
    names: Sequence[str],
    measured: Mapping[str, Scale],
    chosen: Sequence[str],
    event: str,
    device: torch.device,
) -> Tensor:
    features = uploaded(stored, device)
    try:
        scales = {**measured, **SCALES}
        return normalised(features, names, scales, chosen, in_place=features is not stored)
    except InputError as error:
        raise InputError(f"{event}: {error}") from None


@dataclass(frozen=True)
class EdgeTruth:
    """The truth of edges: label [E] float (1 positive, 0 negative), weight [E] float (0 if masked
    or not owned), counts [2] int64 (positives and negatives that this sector owns).

    Set only for a user's own loss: target [E] bool, pt [E] float (GeV; NaN if not known).
    """

    label: Tensor
    weight: Tensor
    counts: Tensor
    target: Tensor | None = None
    pt: Tensor | None = None

    def take(self, rows: Tensor) -> "EdgeTruth":
        """Returns the truth of the edges `rows` [e] int64; its counts stay those of all edges."""
        columns = {name: column for name, column in vars(self).items() if column is not None}
        del columns["counts"]
        return replace(self, **{name: column[rows] for name, column in columns.items()})


def edge_truth(y: Tensor, weights: Tensor, owns_edge: Tensor) -> EdgeTruth:
    """Makes the loss's truth from y [E] bool, weights [E] float and owns_edge [E] bool."""
    positive = y & (weights > 0) & owns_edge
    negative = ((~y & (weights != 0)) | (weights < 0)) & owns_edge
    return EdgeTruth(
        label=positive.to(weights.dtype),
        weight=torch.where(positive | negative, weights.abs(), 0),
        counts=torch.stack([positive.count_nonzero(), negative.count_nonzero()]),
    )


def truth_on(
    device: torch.device, y: Tensor, is_target: Tensor, counted: Tensor, target: Target
) -> EdgeTruth:
    """Makes the truth on `device` from y, is_target and counted ([E] bool), sent as bytes."""
    bits = y.view(torch.uint8) + 2 * is_target.view(torch.uint8) + 4 * counted.view(torch.uint8)
    false, other, wanted = (int((bits == kind).count_nonzero()) for kind in (4, 5, 7))
    weight = target.other_weight
    counts = torch.tensor([wanted + other * (weight > 0), false + other * (weight < 0)])
    bits = uploaded(bits, device)
    y, is_target, counted = ((bits & bit).bool() for bit in (1, 2, 4))
    return replace(edge_truth(y, edge_weights(y, is_target, target), counted), counts=counts)


@dataclass(frozen=True)
class PtTruth:
    """The truth of pT. log_pt [E] float32: log of pT in GeV, 0 if not known. known [E] bool: owned
    true edges, of particles in the target or outside it (mostly soft). count: number of known ones.
    """

    log_pt: Tensor
    known: Tensor
    count: int


def pt_truth(log_pt: Tensor, owns_edge: Tensor, device: torch.device) -> PtTruth:
    """Makes the truth on `device` from log_pt [E] (NaN: not known) and owns_edge [E] bool."""
    known = owns_edge & ~log_pt.isnan()
    return PtTruth(
        log_pt=uploaded(torch.where(known, log_pt, 0), device),
        known=uploaded(known, device),
        count=int(known.sum()),
    )


# An item that a thread has read, and the CUDA event that ends its upload, if any.
Read = tuple[Item, torch.cuda.Event | None]


class Lane:
    """A CUDA stream for uploads by a thread that reads ahead; a no-op on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = _upload_stream(device) if device.type == "cuda" else None

    def read(self, call: Callable[[], Item]) -> Read[Item]:
        """Runs `call` with its GPU work on this stream; returns its item and its CUDA event."""
        if self._stream is None:
            return call(), None
        with torch.cuda.stream(self._stream):
            return call(), self._stream.record_event()

    def hand_over(self, read: Read[Item]) -> Item:
        """Returns the item that was read, after making the current stream wait for its upload."""
        found, there = read
        if there is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(there)
            for tensor in tensors_in(found):
                if tensor.is_cuda:  # the lane's pool must not reuse its memory too early
                    tensor.record_stream(current)
        return found


@cache
def _upload_stream(device: torch.device) -> torch.cuda.Stream:
    """Returns the one upload stream of the process; torch keeps memory for each stream."""
    return torch.cuda.Stream(device)


@dataclass(frozen=True)
class Batch:
    """A sector of a share; `event` is None for an empty one.

    x [N, F], edge_features [E, G] float32 (normalised), edge_index [2, E]: of the sector's first N
    nodes and E edges, which are all of them unless sectors are naive or edges were chosen to train.
    y, is_target, weights [E]: on the host, before masking (for metrics). pt: None if no pT is
    trained. The first `n_owned` nodes are updated here, the others by the share's exchange.
    owned_edges: the number of edges that the sector owns.
    """

    event: int | None
    sector: Sector
    x: Tensor
    edge_features: Tensor
    edge_index: Tensor
    n_owned: int
    owned_edges: int
    y: Tensor
    is_target: Tensor
    target: Target
    truth: EdgeTruth
    pt: PtTruth | None

    @property
    def weights(self) -> Tensor:
        return edge_weights(self.y, self.is_target, self.target)


@dataclass(frozen=True)
class Share:
    """The sectors of one event that a rank computes together, layer by layer. It has at least one
    sector, an empty one on a rank without an event. exchange: sends rows among these sectors and
    those of other ranks; None for a sector that stands alone, such as a whole event.
    """

    batches: Sequence[Batch]
    exchange: HaloPlan | None

    @property
    def event(self) -> int | None:
        return self.batches[0].event

    def padded(self, empty: Batch, n: int, world: World) -> "Share":
        """Returns the share with `n` copies of the sector `empty` appended."""
        exchange = self.exchange or no_halo(world)
        return Share([*self.batches, *[empty] * n], exchange.with_empty(n))


class EdgePrediction(NamedTuple):
    """Predictions for a sector's edges: logits [E], log_pt [E] (log of GeV; None if untrained)."""

    logits: Tensor
    log_pt: Tensor | None


def run_model(model: nn.Module, share: Share) -> list[Tensor]:
    """Runs the model once on a share; returns its output for each sector."""
    inputs = [
        SectorInputs(batch.x, batch.edge_features, batch.edge_index, batch.n_owned)
        for batch in share.batches
    ]
    if len(inputs) == 1:
        exchange = OfOneSector(share.exchange) if share.exchange else no_exchange
        return [model(*inputs[0], exchange)]
    made: list[Tensor] = model(inputs, share.exchange)
    return made


def compute(model: nn.Module, share: Share) -> list[EdgePrediction]:
    """Returns an edge model's predictions by sector; edges left out come last, with logit FALSE."""
    found = []
    for made, batch in zip(run_model(model, share), share.batches, strict=True):
        left_out = 0, len(batch.truth.label) - len(made)
        logits, *log_pt = [made] if made.dim() == 1 else made.unbind(1)
        if any(left_out):  # pad copies in any case
            logits, log_pt = pad(logits, left_out, value=FALSE), [pad(x, left_out) for x in log_pt]
        found.append(EdgePrediction(logits, log_pt[0] if log_pt else None))
    return found


class BatchMaker:
    """Reads events, or a rank's share of them, and makes batches on the device of `world`.

    measured: the scales of features that have none of their own. files: keep the batches; None:
    memory does. Raises InputError if a function of the user's own cannot be imported.
    """

    def __init__(
        self,
        configuration: Configuration,
        world: World,
        measured: MeasuredScales = NOTHING_MEASURED,
        files: InputFiles | None = None,
    ) -> None:
        self.world, self._files = world, files
        self._data = configuration.data
        self._features = load_features(configuration.data, measured)
        self._target = configuration.target
        self._has_pt = configuration.training.pt_weight > 0
        self._loss_is_own = names_code(configuration.training.loss)
        self._pairs = configuration.pairs if configuration.model.kind == "hit" else None

    def make(self, assignment: Assignment | None, sources: list[EventSource]) -> Share:
        """Reads the share of `assignment`, to train. Its sectors exchange halos unless they are
        naive. None gives an empty sector. Raises InputError if the event cannot be read, has no
        truth, has features that are not finite, or has edges that do not end at its nodes.
        """
        if assignment is not None and self._data.sectors == "naive":
            [part] = assignment.held
            sector = sources[assignment.event].read(part, assignment.parts)
            return self.alone(assignment.event, sector)
        return self.exchanging(assignment, sources)

    def of(self, sources: list[EventSource]) -> Callable[[Assignment | None], Share]:
        """Returns a function that calls `make` for assignments among `sources`."""
        return partial(self.make, sources=sources)

    def exchanging(self, assignment: Assignment | None, sources: list[EventSource]) -> Share:
        """Reads an assignment, to score; naive sectors exchange halos, too. Raises as `make`."""
        if assignment is None:
            return self.empty()
        source = sources[assignment.event]
        if self._files is None:
            sectors = source.read_several(assignment.held, assignment.parts)
        else:  # one sector in memory at a time: a name for it would keep it there
            read = partial(source.read, parts=assignment.parts)
            sectors = [self._files.moved(read(part)) for part in assignment.held]
        if assignment.parts == 1:
            return self.alone(assignment.event, sectors[0])
        plan = halo_plan(sectors, assignment.ranks, self.world)
        return Share([self._prepare(assignment.event, one, True) for one in sectors], plan)

    def alone(self, event: int | None, sector: Sector) -> Share:
        """Makes the share of one sector of event number `event`, without the other sectors."""
        return Share([self._prepare(event, sector, False)], None)

    def empty(self) -> Share:
        """Makes the share of a rank without an event: one sector without nodes."""
        names = tuple(self._data.node_features), tuple(self._data.edge_features)
        return self.alone(None, empty_sector(*names))

    def _check(self, sector: Sector) -> None:
        """Raises InputError if an edge has no such node, or a feature is not finite."""
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
            raise InputError(f"{sector.event}: has no truth; build graphs of events with truth")
        what = f"{sector.part} of {sector.parts}: {self._data.node_features} "
        once(sector.known, f"{what}{self._data.edge_features}", lambda: self._check(sector))
        known = sector.y, sector.edge_index, sector.particle_id, sector.particles
        is_target = target_edges(*known, self._target)
        n_nodes, n_edges = sector.n_nodes, sector.n_edges  # the first ones, which are computed
        if not exchanges and self._data.sectors == "naive":
            n_nodes = sector.n_owned
            n_edges = int((sector.edge_index < n_nodes).all(dim=0).sum())
        counted = sector.owns_edge.clone()
        counted[n_edges:] = False
        as_type = torch.int32 if sector.n_nodes < 2**31 else None
        truth = truth_on(device, sector.y, is_target, counted, self._target)
        if self._pairs is not None:  # the false pairs that will be drawn are negatives
            false = torch.tensor(self._pairs.false_pairs(n_nodes))
            truth = replace(truth, counts=torch.stack([truth.counts[0], false]))
        if self._loss_is_own:
            pt = uploaded(edge_pt(*known), device)
            truth = replace(truth, target=uploaded(is_target, device), pt=pt)
        ends = uploaded(sector.edge_index[:, :n_edges], device, as_type)
        CHECKED[ends] = sector.n_nodes  # by `_check`
        if IN_ORDER in sector.known:
            ORDERED[ends] = True
        features = self._features
        read = features.computed.of(sector)
        batch = Batch(
            event=event,
            sector=sector,
            x=features.of_nodes(read, device)[:n_nodes],
            edge_features=features.of_edges(read, device)[:n_edges],
            edge_index=ends,
            n_owned=sector.n_owned if exchanges else n_nodes,
            owned_edges=int(sector.owns_edge.count_nonzero()),
            y=sector.y,
            is_target=is_target,
            target=self._target,
            truth=truth,
            pt=pt_truth(edge_pt(*known).log(), counted, device) if self._has_pt else None,
        )
        return self._files.moved(batch) if self._files else batch


@dataclass(frozen=True)
class Loader:
    """Reads this rank's shares by `make`, one step ahead, in the thread of `prefetcher`."""

    make: Callable[[Assignment | None], Share]
    world: World
    prefetcher: Prefetcher = field(default_factory=Prefetcher)

    def load(self, step: Sequence[MicroStep]) -> list[Share]:
        """Returns this rank's shares of a step, each padded with empty sectors to the most of any
        rank: ZeRO-3 fetches weights once per sector, in the same order on all ranks.
        """
        shares = []
        for micro_step in step:
            share = self.make(micro_step[self.world.ranks.rank])
            most = max((len(one.held) for one in micro_step if one), default=1)
            lacking = most - len(share.batches)
            if lacking:
                share = share.padded(self.make(None).batches[0], lacking, self.world)
            shares.append(share)
        return shares

    def steps(self, routes: Sequence[Sequence[MicroStep]]) -> Iterator[list[Share]]:
        """Yields the shares of each step, read one step ahead in a thread. Collective."""
        lane = Lane(self.world.device)

        def read(step: Sequence[MicroStep]) -> Read[list[Share]]:
            return lane.read(lambda: self.load(step))

        for result in self.prefetcher.each(partial(read, step) for step in routes):
            with self.world.stopwatch.time("data"):
                # A rank that cannot read stops the others too, before they wait for it.
                found = together(result)
            yield lane.hand_over(found)
