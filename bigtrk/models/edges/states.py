"""The states of a sector's edges during a pass, [E, H] for each layer, and then their gradients.

Layer i reads state i and makes state i + 1; state 0 is the encoded features, which all layers may
read again. `bigtrk/models/edges/__init__.py` has the rules.

Shapes: E edges, N nodes, H = hidden, M rows.
"""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from bigtrk.models.edges import fused, native, plain, triton_passes
from bigtrk.models.edges.work import as_on_gpu
from bigtrk.models.protocol import Arrival, Ends, accumulable

Recompute = Literal["none", "layer", "chunk", "offload"]
# Bytes of a chunk's features. Several buffers of a CPU's stay in a core's cache; a GPU starts fewer
# operations with larger chunks, and holds several blocks of the edges on the host.
CPU_BYTES, GPU_BYTES, HOST_BYTES = 2**19, 2**26, 2**24

Passes = ModuleType  # the passes in one form; `plain` says what they compute


def passes_for(device: torch.device, dtype: torch.dtype) -> Passes:
    """Returns the module with the fastest passes over rows of `dtype` on `device`."""
    if native.usable(device, dtype):
        return native
    if triton_passes.usable(device, dtype):
        return triton_passes
    return plain


def chunk_rows(
    hidden: int, recompute: Recompute, dtype: torch.dtype, device: torch.device
) -> int | None:
    """Returns the rows of a chunk, a power of two; None if a layer is computed at once."""
    if recompute == "layer":
        return None
    of_gpu = HOST_BYTES if recompute == "offload" else GPU_BYTES
    n_bytes = of_gpu if as_on_gpu(device) else CPU_BYTES
    return 1 << max(1, n_bytes // (dtype.itemsize * hidden)).bit_length() - 1


class Workspace:
    """The buffers of a pass forward and, if it `trains`, backward. They are reused, since on a CPU
    fresh memory costs more than the computation in it. keeps: products are kept for the backward
    pass. weights_stay: weights stay in memory after their layer, since no engine shards them.
    """

    weights_stay = False

    def __init__(
        self, hidden: int, recompute: Recompute, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.dtype, self.device = dtype, device
        self.sums = torch.promote_types(dtype, torch.float32)
        self.trains = torch.is_grad_enabled()
        self.keeps = self.trains and recompute == "none"
        self._chunk = chunk_rows(hidden, recompute, dtype, device)
        self._buffers: dict[tuple[str, int], Tensor] = {}

    def chunks(self, n_rows: int) -> Iterator[slice]:
        """Yields the slice of each chunk; one slice of all rows if a layer is computed at once."""
        step = self._chunk or max(n_rows, 1)
        for start in range(0, n_rows, step):
            yield slice(start, min(start + step, n_rows))

    def rows(self, name: str, n_rows: int, width: int, dtype: torch.dtype | None = None) -> Tensor:
        """Returns an uninitialised buffer [n_rows, width]; calls with the same `name` share it."""
        found = self._buffers.get((name, width))
        if found is not None and len(found) >= n_rows:
            return found[:n_rows]
        made = torch.empty(n_rows, width, dtype=dtype or self.dtype, device=self.device)
        if self._chunk is not None:  # buffers of all edges would be most of the memory
            self._buffers[name, width] = made
        return made


Rows = Any  # the result of a store's `new`: a tensor, or a place


class Block(NamedTuple):
    """A block of a pass: the slice `rows`, tensors [M, W] to read, and tensors `made` to fill."""

    rows: slice
    read: list[Tensor]
    made: list[Tensor]


class EdgeStore(Protocol):
    """Keeps rows of edges until nothing refers to them; raises InputError if it cannot."""

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Rows:
        """Allocates uninitialised rows [n_rows, width], for passes on `device`."""

    def blocks(self, n_rows: int, read: Sequence[Rows], made: Sequence[Rows]) -> Iterator[Block]:
        """Yields a pass's blocks in order; a block is read from the store before it is filled."""


class MemoryStore:
    """Keeps rows in the device's memory."""

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Returns an uninitialised tensor [n_rows, width]."""
        return torch.empty(n_rows, width, dtype=dtype, device=device)

    def blocks(
        self, n_rows: int, read: Sequence[Tensor], made: Sequence[Tensor]
    ) -> Iterator[Block]:
        """Yields one block that holds all rows."""
        yield Block(slice(0, n_rows), list(read), list(made))


class HaloRows:
    """A layer's halo rows, which may still be travelling."""

    def __init__(self) -> None:
        self._arrival: Arrival | None = None
        self._later: tuple[Tensor, Tensor] | None = None
        self.converted = WeakTensorKeyDictionary()  # nodes [N, H] without halo -> converted rows

    def expect(self, arrival: Arrival) -> None:
        self._arrival = arrival if arrival.is_awaited else None

    @property
    def are_awaited(self) -> bool:
        return self._arrival is not None

    def read(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Converts nodes [N, H] to `dtype`; halo rows still travelling follow in `wait`."""
        read: Tensor | None = self.converted.pop(x, None)
        read = x.to(dtype) if read is None else read
        if self.are_awaited and read is not x:
            self._later = x, read
        return read

    def wait(self, n_owned: int) -> None:
        """Waits for the halo rows, and converts them for `read`."""
        if self._arrival is None:
            return
        self._arrival.wait()
        if self._later is not None:
            x, read = self._later
            read[n_owned:] = x[n_owned:]
        self._arrival = self._later = None


class Gradient(NamedTuple):
    """The gradient of a layer's first product, and that product's weights [H, H] for its inputs."""

    rows: Rows
    of_state: Tensor
    of_encoded: Tensor | None = None


class EdgeStates:
    """The states of E edges, kept in `store`. reads_encoded: every layer also reads state 0.
    Autograd sees an empty tensor, `token` [E, 0], in the place of each state.
    """

    def __init__(
        self, n_edges: int, hidden: int, work: Workspace, store: EdgeStore, reads_encoded: bool
    ) -> None:
        self.n_edges, self._hidden, self._work, self._store = n_edges, hidden, work, store
        self.reads_encoded = reads_encoded
        self._states: dict[int, Rows] = {}
        self.gradients: list[Gradient] = []  # of the layers, last first
        self.sums: Ends | None = None  # sums of edges that a layer has read, for the layer before

    @property
    def n_inputs(self) -> int:
        return 2 if self.reads_encoded else 1

    @property
    def in_one_block(self) -> bool:
        return isinstance(self._store, MemoryStore)

    def token(self) -> Tensor:
        return torch.empty(self.n_edges, 0, device=self._work.device)

    def inputs(self, i: int) -> list[Rows]:
        """Lists the states that layer i reads: state i and, with `reads_encoded`, state 0."""
        state = self.state(i)
        return [state, self.state(0)] if self.reads_encoded else [state]

    def make(self, i: int) -> Rows:
        """Allocates state i; without a backward pass it reuses the memory of state i - 1."""
        read_again = 1 if self.reads_encoded else 0
        in_place = not self._work.trains and i > read_again
        self._states[i] = self._states.pop(i - 1) if in_place else self._new()
        return self._states[i]

    def blocks(self, read: Sequence[Rows] = (), made: Sequence[Rows] = ()) -> Iterator[Block]:
        """Yields the blocks of a pass over all edges."""
        return self._store.blocks(self.n_edges, read, made)

    def gradient_rows(self, i: int) -> Rows:
        """Returns the memory of layer i's result, for the gradient of its first product."""
        # The last layer made no state.
        return self._states.pop(i + 1) if i + 1 in self._states else self._new()

    def give_gradient(self, rows: Rows, columns: Tensor, *, is_own: bool) -> None:
        """Stores the gradient of a layer's first product, and the product's weights [H, ...], whose
        first columns are for the edges. is_own: the pass owns this copy of the weights.
        """
        if not self.reads_encoded:
            self.gradients.clear()
        columns = columns[:, : self.n_inputs * self._hidden]
        own = columns if is_own or self._work.weights_stay else columns.clone()
        self.gradients.append(Gradient(rows, *own.split(self._hidden, dim=1)))

    def from_next(self, gradient: Tensor) -> Tensor:
        """Returns the edges' gradient [M, H] from that of the next layer's first product."""
        return self._product("gradient of edges", gradient, self.gradients[-1].of_state)

    def of_encoded(self, gradients: Sequence[Tensor], place: Tensor | None, rows: slice) -> Tensor:
        """Returns the gradient [M, H] of `rows` of the encoded edges from `gradients`, those of
        all layers. Fused launches write it to `place`, the edges' memory, if given.
        """
        gradients = [gradient[rows] for gradient in gradients]
        weights = [one.of_encoded for one in self.gradients if one.of_encoded is not None]
        dtype, width = self._work.dtype, self._hidden
        if fused.usable(gradients[0].device, dtype, width, 1):
            total = torch.empty_like(gradients[0]) if place is None else place[rows]
            terms = [*gradients[: len(weights)], gradients[-1]]
            weights.append(self.gradients[-1].of_state)
            fused.products(terms, weights, None, [total], dtype, transposed=True, written=1)
            return total
        total = self.from_next(gradients[-1])
        if weights:
            read_again = accumulable(total).new_zeros(total.shape)
            for values, weight in zip(gradients, weights, strict=True):
                read_again += self._product("gradient of input", values, weight)
            total += read_again
        return total

    def free(self) -> None:
        """Forgets all rows: an autograd graph, which refers to them, may outlive the pass."""
        self._states.clear()
        self.gradients.clear()

    def _product(self, name: str, values: Tensor, weight: Tensor) -> Tensor:
        out = self._work.rows(name, len(values), weight.shape[1])
        weights = [weight.to(out.dtype)]
        passes_for(out.device, out.dtype).multiply([values], weights, None, out)
        return out

    def _new(self) -> Rows:
        work = self._work
        return self._store.new(self.n_edges, self._hidden, work.dtype, work.device)

    def state(self, i: int) -> Rows:
        """Returns state i; RuntimeError if a gradient has overwritten it."""
        if i not in self._states:
            raise RuntimeError("the edges' states are gone: a backward pass can be run once")
        return self._states[i]


class Encoded:
    """The encoded nodes [M, H], which every layer reads, and their gradient summed over layers."""

    def __init__(self, values: Tensor) -> None:
        self.values = values.detach()
        self._gradient: Tensor | None = None

    def add(self, rows: slice, part: Tensor) -> None:
        total, adds = self.total()
        (total if adds else total.zero_())[rows] += part

    def total(self) -> tuple[Tensor, bool]:
        """Returns the buffer of the gradient, and whether it already holds a sum."""
        adds = self._gradient is not None
        if self._gradient is None:
            dtype = torch.promote_types(self.values.dtype, torch.float32)
            self._gradient = torch.empty_like(self.values, dtype=dtype)
        return self._gradient, adds

    def take(self) -> Tensor:
        """Returns the gradient summed over all layers, and clears it for the next pass."""
        taken, self._gradient = self._gradient, None
        return torch.zeros_like(self.values) if taken is None else taken
