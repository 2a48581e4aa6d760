"""The memory and the roofline of an event on K ranks.

Memory is counted (footprint.py); only the process's own part is a constant. Time is a roofline, not
a prediction: the longest of matrix products, bytes moved and operations started, each at a rate of
the machine (machines.py). Times of exchange and reduction follow from latency and bandwidth.
"""

import math
from dataclasses import asdict, dataclass, replace
from functools import partial

from bigtrk.cost.event_size import EventSize, SectorSize, neighbours
from bigtrk.cost.footprint import Footprint, activations, columns, footprint
from bigtrk.cost.machines import Machine, all_gather, all_reduce
from bigtrk.models.edges.states import HOST_BYTES
from bigtrk.models.edges.stores import BLOCK_BYTES
from bigtrk.models.settings import ModelConfig
from bigtrk.parallel.engines.spec import BYTES, Sharding

# A checkpoint has each weight's value and two moments. Three copies are made in the host's memory,
# one of the state and two of what is written, and most are freed before the next pass has its
# activations (hidden 512 on 1 to 4 ranks).
_CHECKPOINT_WORDS = 3 * 3
# A batch without its features: edge ids and ends, three loss columns (one of them while it is
# made), flags; ids of nodes.
_EDGE_BYTES, _EDGE_BYTES_ON_DEVICE, _NODE_BYTES = 8 + 16 + 12 + 2, 16 + 8, 8 + 8 + 8 + 4
# Bytes of an edge for merging stored sectors, without the sectors and the merged ones: rows, ends,
# their owners and orders, and joined features.
_MERGED_EDGE_BYTES = 100


@dataclass(frozen=True)
class Memory:
    """The peak bytes of one rank, by kind. buffers: the engine's, and what reducing gradients,
    updating weights or writing a checkpoint takes beyond the activations, once these are freed.
    """

    process: float
    parameters: float
    gradients: float
    optimizer: float
    buffers: float
    inputs: float
    saved: float
    working: float
    halo: float

    @property
    def total(self) -> float:
        """The sum in whole bytes."""
        return float(math.floor(sum(asdict(self).values())))


@dataclass(frozen=True)
class CostModel:
    """Counts memory and time for one model, engine, world and machine.

    n_node_features, n_edge_features: F and G. ranks_per_node: ranks that share a host.
    events_per_step: the events that a rank holds at once. reads_ahead: it also holds the events of
    the next step, as in epochs of several steps. spills_beyond: bytes of a rank's memory beyond
    which states of edges, and inputs, are kept in files; None: never. averages: an average of the
    weights is kept, divided over the ranks.
    """

    model: ModelConfig
    n_node_features: int
    n_edge_features: int
    sharding: Sharding
    world: int
    ranks_per_node: int
    machine: Machine
    events_per_step: int = 1
    reads_ahead: bool = True
    spills_beyond: float | None = None
    averages: bool = False

    def footprint(self, cut: bool, sectors: int = 1, most_rows: int | None = None) -> Footprint:
        """Counts a pass over `sectors` sectors; most_rows: for a graph too small to fill a GPU."""
        features = self.n_node_features, self.n_edge_features
        # The weights at the start of a training change no count.
        model = self.model.model_copy(update={"init_from": None})
        on_gpu = not self.machine.shared
        away_in = None if self.spills_beyond is None else BLOCK_BYTES
        if on_gpu and model.recompute == "offload":
            away_in = HOST_BYTES
        return footprint(model, *features, cut, away_in, sectors, on_gpu, most_rows)

    def memory(self, event: EventSize, parts: int, ranks: int) -> Memory:
        """Returns the peak memory of the rank with most of the event's `parts` sectors on `ranks`
        ranks: inputs and saved tensors of all its sectors, counted as if all were the largest, and
        the working memory of a layer on one. A model that is not layered has its sectors merged.
        """
        if self.spills_beyond is None:
            return self._without_edges_away(event, parts, ranks)
        in_files = self._fills_files(event, parts, ranks)
        memory = self._without_edges_away(event, parts, ranks, inputs_away=in_files)
        kept = self.away_bytes(event, parts, ranks) - self.spilled_bytes(event, parts, ranks)
        return replace(memory, saved=memory.saved + kept)

    def _fills_files(self, event: EventSize, parts: int, ranks: int) -> bool:
        """Whether an event may exceed the memory, so that some of it goes to files."""
        if self.spills_beyond is None:
            return False
        memory = self._without_edges_away(event, parts, ranks)
        away = self.away_bytes(event, parts, ranks)
        return replace(memory, saved=memory.saved + away).total > self.spills_beyond

    def spilled_bytes(self, event: EventSize, parts: int, ranks: int) -> float:
        """Returns the bytes of states of edges that a rank keeps in files."""
        if self.spills_beyond is None or not self._fills_files(event, parts, ranks):
            return 0.0
        # The total is at most the whole bytes of the limit: shares of ranks may be fractions.
        without = self._without_edges_away(event, parts, ranks, inputs_away=True).total + 1
        room = max(0.0, math.floor(self.spills_beyond) - without)
        row = self.footprint(cut=parts > 1).width * (2 if self.model.precision == "bf16" else BYTES)
        tensor = row * event.sector(parts).edges
        # A tensor is in memory or in a file.
        return max(0.0, self.away_bytes(event, parts, ranks) - (room - room % tensor))

    def _without_edges_away(
        self, event: EventSize, parts: int, ranks: int, inputs_away: bool = False
    ) -> Memory:
        count = self.footprint(cut=parts > 1)
        if not count.layered:
            parts = min(parts, ranks)
        size, sectors = event.sector(parts), math.ceil(parts / ranks)
        counted = partial(self.footprint, parts > 1)
        saved, peak = activations(counted, size, sectors)
        halo = 0.0
        if size.halo:
            # `lean` counts the sectors without their halo, but with cut edges; `packed` counts the
            # rows that are sent.
            _, lean = activations(counted, SectorSize(size.edges, size.owned), sectors)
            packed = 2 * sectors * size.halo * max(count.exchanged, default=0)
            halo, peak = peak - lean + packed, lean
            saved = min(saved, peak)
        machine, held = self.machine, self.sharding.held(count.weights, self.machine.shared)
        # Where the host's memory counts, a rank writes its part of a checkpoint, too.
        words = _CHECKPOINT_WORDS * count.weights.total / self.world if machine.shared else 0.0
        without = BYTES * max(held.after, words)
        return Memory(
            process=machine.process_bytes + machine.shared * self.sharding.module_bytes,
            parameters=BYTES * held.parameters,
            gradients=BYTES * held.gradients,
            optimizer=BYTES * (held.optimizer + self.averages * count.weights.total / self.world),
            buffers=BYTES * held.buffers + max(0.0, without - peak - halo),
            inputs=self._input_bytes(event, parts, ranks, inputs_away),
            saved=saved,
            working=peak - saved,
            halo=halo,
        )

    def input_file_bytes(self, event: EventSize, parts: int, ranks: int) -> float:
        """Returns the bytes of edges' inputs in a rank's files, if it keeps edges there."""
        return self._batches(parts, ranks) * self.edge_input_bytes(event, parts)

    def away_bytes(self, event: EventSize, parts: int, ranks: int) -> float:
        """Returns the bytes of edges that a rank keeps off its device: on its host, or in files."""
        sectors = math.ceil(parts / ranks)
        return sectors * float(self.footprint(cut=parts > 1).away @ columns(event.sector(parts)))

    def seconds(self, event: EventSize, parts: int, ranks: int) -> float:
        """Returns the seconds, by the roofline, to train an event in `parts` sectors on `ranks`
        ranks, with its halo exchanges, but without the reduction at the step's end.
        """
        sectors = math.ceil(parts / ranks)
        computing = self.compute_seconds(event.sector(parts), parts, sectors)
        # Edges that are kept off the device travel during the computation.
        slowest = max(computing, self._travel_seconds(event, parts, ranks))
        return slowest + self.exchange_seconds(event, ranks)

    def _travel_seconds(self, event: EventSize, parts: int, ranks: int) -> float:
        """Returns the seconds to move edges between the device and the host or files."""
        away = self.away_bytes(event, parts, ranks)
        if not away:
            return 0.0
        count, sectors = self.footprint(cut=parts > 1), math.ceil(parts / ranks)
        moved = sectors * float(count.moved @ columns(event.sector(parts)))
        if self.spills_beyond is None:
            return moved / self.machine.transfer
        return moved * self.spilled_bytes(event, parts, ranks) / away / self.machine.disk

    def compute_seconds(self, size: SectorSize, parts: int, sectors: int = 1) -> float:
        """Returns the roofline seconds of a rank's passes over `sectors` sectors of `size`."""
        count, sizes, machine = self.footprint(cut=parts > 1), columns(size), self.machine
        in_bf16 = float(count.bf16_flops @ sizes)
        products = (float(count.flops @ sizes) - in_bf16) / machine.fp32 + in_bf16 / machine.bf16
        # Traffic is extrapolated from many blocks, of which the first reads no sums, so it may be
        # negative for few rows.
        moved = max(0.0, float(count.traffic @ sizes)) / machine.bandwidth
        started = float(count.operations @ sizes) * machine.launch
        # The ranks of a CPU host split its cores.
        sharers = min(self.world, self.ranks_per_node) if machine.shared else 1
        return sectors * max(sharers * products, sharers * moved, started)

    def exchange_seconds(self, event: EventSize, ranks: int) -> float:
        """Returns the seconds of the halo exchanges between ranks, forward and backward. They are
        about those with one sector per rank, since sectors of one rank exchange rows within it.
        """
        if ranks == 1:
            return 0.0
        link = self.machine.network.slowest(ranks, self.ranks_per_node)
        halo, messages = event.sector(ranks).halo, neighbours(ranks)
        rows = self.footprint(cut=True).exchanged
        return 2 * sum(link.seconds(messages, halo * n_bytes) for n_bytes in rows)

    def passes(self, micro_steps: int, sectors: int) -> int:
        """Counts the passes through the layers of a rank that trains `sectors` sectors in turn."""
        return max(micro_steps, sectors) if self.footprint(cut=True).layered else micro_steps

    def reduction_seconds(self, micro_steps: int = 1, passes: int = 1) -> float:
        """Returns the seconds of a step's reductions, and of gathering sharded state in `passes`
        passes through the layers. There is at least one pass in each micro-step.
        """
        n_bytes = BYTES * self.footprint(cut=False).weights.total
        link, world = self.machine.network.slowest(self.world, self.ranks_per_node), self.world
        if self.sharding.level == "none":
            return all_reduce(link, world, n_bytes)
        scattered = micro_steps if self.sharding.scatters_often else 1
        # The updated weights are gathered; where parameters are sharded they are gathered in every
        # forward and backward pass instead.
        gathered = 2 * max(micro_steps, passes) if self.sharding.lockstep else 1
        return (scattered + gathered) * all_gather(link, world, n_bytes)

    def _batches(self, parts: int, ranks: int) -> int:
        """Counts the sectors in a rank's memory: a step's and, if read ahead, the next one's."""
        shares = max(1, math.ceil(self.events_per_step * ranks / self.world))
        return (2 if self.reads_ahead else 1) * shares * math.ceil(parts / ranks)

    def _input_bytes(self, event: EventSize, parts: int, ranks: int, away: bool) -> float:
        """Returns the bytes of batches and, on a CPU that reads ahead, of merging stored sectors
        for the next step. away: edges' inputs are in files, except those of one sector.
        """
        size, batches = event.sector(parts), self._batches(parts, ranks)
        merged, shared = event.stored > parts, self.machine.shared
        features = BYTES * self.n_node_features
        row = (2 if merged else 1) * features + _NODE_BYTES if shared else features
        merging = _MERGED_EDGE_BYTES * size.edges if merged and shared and self.reads_ahead else 0.0
        edges = (1 if away else batches) * self.edge_input_bytes(event, parts)
        return edges + batches * row * size.nodes + merging

    def edge_input_bytes(self, event: EventSize, parts: int) -> float:
        """Returns the bytes of a batch's edges: on a GPU in its memory, on a CPU in the host's.

        If sectors are merged, a CPU also holds the features as stored; else those stay in the file.
        """
        size, merged = event.sector(parts), event.stored > parts
        features = BYTES * self.n_edge_features
        if not self.machine.shared:
            return (features + _EDGE_BYTES_ON_DEVICE) * size.edges
        return ((2 if merged else 1) * features + _EDGE_BYTES) * size.edges
