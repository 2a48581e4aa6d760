"""Memory and time of an event on K ranks, predicted from counts and a few machine constants.

Memory is counted exactly (footprint.py); only the process's own part is fitted.
Time is that of matrix products, bytes moved and operations started, each at a fitted rate; exchange
and reduction follow from latency and bandwidth (links.py).
"""

import math
from dataclasses import asdict, dataclass

import numpy as np

from bigtrk.cost.event_size import EventSize, SectorSize
from bigtrk.cost.footprint import Columns, Footprint, footprint
from bigtrk.cost.links import exchange
from bigtrk.cost.machine_constants import CACHED_BYTES, MachineConstants
from bigtrk.cost.sharding import BYTES, Sharding
from bigtrk.models.layers.workspace import CPU_BYTES, GPU_BYTES
from bigtrk.models.settings import ModelConfig
from bigtrk.models.stores.files import BLOCK_BYTES

# AdamW's elementwise operations read and write 20 words per weight, 12 operations per tensor.
_OPTIMIZER_WORDS = 20
# A checkpoint has each weight's value and two moments. Three copies are made in the host's memory,
# one of the state and two of what is written, and most are freed before the next pass has its
# activations (hidden 512 on 1 to 4 ranks).
_CHECKPOINT_WORDS = 3 * 3
# A batch beside its features: edge ids and ends, three loss columns, flags; ids of nodes.
_EDGE_BYTES, _NODE_BYTES = 8 + 16 + 12 + 2, 8 + 8 + 8 + 4
_EDGE_BYTES_ON_DEVICE = 16 + 8
# Sectors of a rank that are counted at once, at most: a pass over many takes seconds.
_COUNTED_SECTORS = 3


@dataclass(frozen=True)
class Memory:
    """Peak bytes of one rank, by lever. buffers: those of the engine, and what reducing gradients,
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
        return float(sum(asdict(self).values()))


@dataclass(frozen=True)
class CostModel:
    """Predicts memory and time for one model, engine, world and machine.

    n_node_features, n_edge_features: F and G. ranks_per_node: ranks that share a host. shares: the
    number of shares that the cores of a CPU host are split into, one for a rank, if more than it
    has ranks. events_per_step: a rank holds all of its own at once, and if it `reads_ahead`, since
    an epoch has several steps, the next step's. spills: edges between layers are in files.
    in_a_row: the ranks of a host follow each other, so that sectors near each other share it.
    """

    model: ModelConfig
    n_node_features: int
    n_edge_features: int
    sharding: Sharding
    world: int
    ranks_per_node: int
    machine: MachineConstants
    shares: int = 1
    events_per_step: int = 1
    reads_ahead: bool = True
    spills: bool = False
    in_a_row: bool = True

    def footprint(self, cut: bool, sectors: int = 1) -> Footprint:
        features = self.n_node_features, self.n_edge_features
        return footprint(self.model, *features, cut, self._away_in, sectors)

    @property
    def _away_in(self) -> int | None:
        """Returns the bytes of a block of edges, where these are kept off the device."""
        if self.model.recompute == "offload" and not self.machine.shared:
            return GPU_BYTES
        return BLOCK_BYTES if self.spills else None

    def memory(self, event: EventSize, parts: int, ranks: int) -> Memory:
        """Returns the peak memory of the rank with most of the event's `parts` sectors, the largest
        ones, on `ranks` ranks: inputs and what is saved of them all, and what a layer takes that
        computes one after another. A model that is not layered has them merged.
        """
        count = self.footprint(cut=parts > 1)
        if not count.layered:
            parts = min(parts, ranks)
        size, sectors = event.sector(parts), math.ceil(parts / ranks)
        saved, peak = self._activations(size, parts > 1, sectors)
        halo = 0.0
        if size.halo:
            # These are the sectors without the halo, but with their cut edges; then come the rows
            # packed to be sent.
            _, lean = self._activations(SectorSize(size.edges, size.owned), True, sectors)
            packed = 2 * sectors * size.halo * max(count.exchanged, default=0)
            halo, peak = peak - lean + packed, lean
            saved = min(saved, peak)
        held = self.sharding.held(count.weights, self.machine.shared)
        without = max(BYTES * held.after, self._checkpoint_bytes(count))
        return Memory(
            process=self._process_bytes(),
            parameters=BYTES * held.parameters,
            gradients=BYTES * held.gradients,
            optimizer=BYTES * held.optimizer,
            buffers=BYTES * held.buffers + max(0.0, without - peak - halo),
            inputs=self._batches(parts, ranks) * self._input_bytes(size),
            saved=saved,
            working=peak - saved,
            halo=halo,
        )

    def away_bytes(self, event: EventSize, parts: int, ranks: int) -> float:
        """Returns the bytes of edges that a rank keeps off its device: on its host, or in files."""
        sectors = math.ceil(parts / ranks)
        return sectors * float(self.footprint(cut=parts > 1).away @ _sizes(event.sector(parts)))

    def smallest_parts(self, event: EventSize, budget: float) -> int | None:
        """Returns the smallest power of two of sectors that, one on a rank, fits `budget` bytes;
        None if the world's largest does not.
        """
        parts = 1
        while parts <= self.world:
            if self.memory(event, parts, parts).total <= budget:
                return parts
            parts *= 2
        return None

    def seconds(self, event: EventSize, parts: int, ranks: int) -> float:
        """Returns the seconds to train an event in `parts` sectors on `ranks` ranks, without a
        step's reduction.
        """
        sectors = math.ceil(parts / ranks)
        computing = sectors * self.compute_seconds(event.sector(parts), parts)
        return computing + self.exchange_seconds(event, ranks)

    def compute_seconds(self, size: SectorSize, parts: int) -> float:
        """Returns the seconds of a forward and backward pass over a sector."""
        machine, count = self.machine, self.footprint(cut=parts > 1)
        sizes = _sizes(size)
        rows = np.array([size.edges, size.nodes, size.nodes, 0])
        near = rows * count.width * BYTES < CACHED_BYTES  # tensors of so many stay near the core
        near |= self.model.in_chunks
        moved = (count.traffic * sizes / np.where(near, machine.cached, machine.traffic)).sum()
        busy = count.flops @ sizes / machine.flops[self.model.precision] + moved
        operations = count.operations.copy()
        if not machine.shared and self.model.in_chunks:
            operations[:3] *= CPU_BYTES / GPU_BYTES  # counted in the chunks of a CPU
        computed = busy * self._sharers(near[0]) + operations @ sizes * machine.operation
        # Edges travel beside the computation.
        return float(
            max(computed, count.moved @ sizes / (machine.disk if self.spills else machine.transfer))
        )

    def exchange_seconds(self, event: EventSize, ranks: int) -> float:
        """Returns the seconds of the halo exchanges of forward and backward between ranks, which
        are about those of one sector on each: what sectors of one rank exchange stays there.
        """
        if ranks == 1:
            return 0.0
        volume = event.exchange(ranks, self.ranks_per_node, self.in_a_row)
        network, rows = self.machine.network, self.footprint(cut=True).exchanged
        return 2 * sum(exchange(network, volume, n_bytes) for n_bytes in rows)

    def step_seconds(self) -> float:
        """Returns the seconds that a step adds to its events: reduction and optimizer."""
        count = self.footprint(cut=False)
        link = self.machine.network.slowest(self.world, self.ranks_per_node)
        layers = len(count.exchanged) + 1
        reduced = self.sharding.seconds(link, self.world, count.weights.total, layers)
        updated = _OPTIMIZER_WORDS * BYTES * count.weights.total
        return reduced + updated / self.machine.traffic * self._sharers(False)

    def _activations(self, size: SectorSize, cut: bool, sectors: int) -> tuple[float, float]:
        """Returns the bytes of so many sectors of a rank saved between forward and backward, and at
        the peak. Both grow by as much with each sector beyond a few, which are counted.
        """
        sizes, few = _sizes(size), min(sectors, _COUNTED_SECTORS)
        count = self.footprint(cut, few)
        saved, peak = float(count.saved @ sizes), float((count.live @ sizes).max())
        if sectors > few:
            fewer_saved, fewer_peak = self._activations(size, cut, few - 1)
            saved += (sectors - few) * (saved - fewer_saved)
            peak += (sectors - few) * (peak - fewer_peak)
        return saved, peak

    def _process_bytes(self) -> float:
        """Returns the bytes of the interpreter and of what it imports."""
        machine, zero = self.machine, self.sharding.zero
        if zero is None:
            return machine.process_bytes
        modules = machine.deepspeed_bytes + (machine.zero_bytes if zero.stage else 0)
        return machine.process_bytes + modules

    def _checkpoint_bytes(self, count: Footprint) -> float:
        """Returns the bytes to write this rank's part of a checkpoint, where host memory counts."""
        if not self.machine.shared:
            return 0.0
        return BYTES * _CHECKPOINT_WORDS * count.weights.total / self.world

    def _batches(self, parts: int, ranks: int) -> int:
        """Counts the sectors a rank has at once: a step's and, read meanwhile, the next one's."""
        shares = max(1, math.ceil(self.events_per_step * ranks / self.world))
        return (2 if self.reads_ahead else 1) * shares * math.ceil(parts / ranks)

    def _input_bytes(self, size: SectorSize) -> float:
        """Returns the bytes of a batch where memory counts: on the device, or in all on a CPU."""
        edge, node = BYTES * self.n_edge_features, BYTES * self.n_node_features
        if not self.machine.shared:
            return (edge + _EDGE_BYTES_ON_DEVICE) * size.edges + node * size.nodes
        # Features are held as stored and as normalised.
        return (2 * edge + _EDGE_BYTES) * size.edges + (2 * node + _NODE_BYTES) * size.nodes

    def _sharers(self, near: bool) -> float:
        """Returns how many times longer computing takes since other ranks share the host."""
        sharers = 1
        if self.machine.shared:
            sharers = max(self.shares, min(self.world, self.ranks_per_node))
        share = self.machine.sharing_cached if near else self.machine.sharing
        return sharers * share if sharers > 1 else 1.0


def _sizes(size: SectorSize) -> Columns:
    return np.array([size.edges, size.nodes, size.owned, 1.0])
