"""Keeps a sector's edges during a pass, [E, H] for each layer: their states, then gradients.

The edges that layer i reads are state i, those that it makes state i + 1; state 0 are the encoded
features, which all layers may read again. `bigtrk/models/edges/__init__.py` has the rules.

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
from bigtrk.models.protocol import Arrival, accumulable

Recompute = Literal["none", "layer", "chunk", "offload"]
# Bytes of a chunk's features. Several buffers of a CPU's stay in a core's cache; a GPU starts fewer
# operations with larger chunks, and holds several blocks of the edges on the host.
CPU_BYTES, GPU_BYTES, HOST_BYTES = 2**19, 2**26, 2**24

Passes = ModuleType  # the passes in one form; `plain` says what they compute


def passes_for(device: torch.device, dtype: torch.dtype) -> Passes:
    """Chooses the fastest passes over rows of `dtype` on `device`."""
    if native.usable(device, dtype):
        return native
    if triton_passes.usable(device, dtype):
        return triton_passes
    return plain


def chunk_rows(
    hidden: int, recompute: Recompute, dtype: torch.dtype, device: torch.device
) -> int | None:
    """Returns the rows of a chunk, a power of two; None where a layer is computed at once."""
    if recompute == "layer":
        return None
    of_gpu = HOST_BYTES if recompute == "offload" else GPU_BYTES
    n_bytes = of_gpu if as_on_gpu(device) else CPU_BYTES
    return 1 << max(1, n_bytes // (dtype.itemsize * hidden)).bit_length() - 1


class Workspace:
    """The buffers of a pass forward and, if it `trains`, backward. They are used again, since on a
    CPU fresh memory costs more than the computation in it. keeps: products are kept for the
    backward pass. weights_stay: weights outlive their layer, since no engine shards them.
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
        """Yields a slice of the rows per chunk; one of all rows if a layer is computed at once."""
        step = self._chunk or max(n_rows, 1)
        for start in range(0, n_rows, step):
            yield slice(start, min(start + step, n_rows))

    def rows(self, name: str, n_rows: int, width: int, dtype: torch.dtype | None = None) -> Tensor:
        """Returns a buffer [n_rows, width] of any content; that of the last call with this name."""
        found = self._buffers.get((name, width))
        if found is not None and len(found) >= n_rows:
            return found[:n_rows]
        made = torch.empty(n_rows, width, dtype=dtype or self.dtype, device=self.device)
        if self._chunk is not None:  # buffers of all edges would be most of the memory
            self._buffers[name, width] = made
        return made


Rows = Any  # what a store made by `new`: a tensor, or the place of one


class Block(NamedTuple):
    """Rows `rows` of a pass: tensors [M, W] to read, and others to fill, which are then kept."""

    rows: slice
    read: list[Tensor]
    made: list[Tensor]


class EdgeStore(Protocol):
    """Keeps rows of edges until nothing refers to them; InputError where it cannot."""

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Rows:
        """Makes room for rows [n_rows, width] of any content, which passes on `device` use."""

    def blocks(self, n_rows: int, read: Sequence[Rows], made: Sequence[Rows]) -> Iterator[Block]:
        """Yields a pass's blocks in order; a block is read before it is filled."""


class MemoryStore:
    """Keeps rows in the memory of the device."""

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Makes a tensor [n_rows, width]."""
        return torch.empty(n_rows, width, dtype=dtype, device=device)

    def blocks(
        self, n_rows: int, read: Sequence[Tensor], made: Sequence[Tensor]
    ) -> Iterator[Block]:
        """Yields one block of all rows."""
        yield Block(slice(0, n_rows), list(read), list(made))


class HaloRows:
    """Waits for the halo rows that are on their way."""

    def __init__(self) -> None:
        self._arrival: Arrival | None = None
        self._later: tuple[Tensor, Tensor] | None = None
        self.converted = WeakTensorKeyDictionary()  # nodes [N, H] that have no halo, as read

    def expect(self, arrival: Arrival) -> None:
        self._arrival = arrival if arrival.is_awaited else None

    @property
    def are_awaited(self) -> bool:
        return self._arrival is not None

    def read(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Converts nodes [N, H], the halo rows when they are there."""
        read: Tensor | None = self.converted.pop(x, None)
        read = x.to(dtype) if read is None else read
        if self.are_awaited and read is not x:
            self._later = x, read
        return read

    def wait(self, n_owned: int) -> None:
        """Returns when the halo rows are there."""
        if self._arrival is None:
            return
        self._arrival.wait()
        if self._later is not None:
            x, read = self._later
            read[n_owned:] = x[n_owned:]
        self._arrival = self._later = None


class _Gradient(NamedTuple):
    """The gradient of a layer's first product, and the weights [H, H] of that for its inputs."""

    rows: Rows
    of_state: Tensor
    of_encoded: Tensor | None = None


class EdgeStates:
    """The states of E edges, kept in `store`. reads_encoded: every layer also reads state 0. In
    place of each state autograd sees an empty tensor, `token` [E, 0].
    """

    def __init__(
        self, n_edges: int, hidden: int, work: Workspace, store: EdgeStore, reads_encoded: bool
    ) -> None:
        self.n_edges, self._hidden, self._work, self._store = n_edges, hidden, work, store
        self.reads_encoded = reads_encoded
        self._states: dict[int, Rows] = {}
        self._gradients: list[_Gradient] = []  # of the layers, last first
        self._sums: tuple[Tensor, Tensor] | None = None

    @property
    def n_inputs(self) -> int:
        return 2 if self.reads_encoded else 1

    @property
    def in_one_block(self) -> bool:
        return isinstance(self._store, MemoryStore)

    def token(self) -> Tensor:
        return torch.empty(self.n_edges, 0, device=self._work.device)

    def inputs(self, i: int) -> list[Rows]:
        """Lists what layer i reads: its edges and, if so, the encoded ones."""
        state = self.state(i)
        return [state, self.state(0)] if self.reads_encoded else [state]

    def make(self, i: int) -> Rows:
        """Makes room for state i; without a backward pass in the place of the one before."""
        read_again = 1 if self.reads_encoded else 0
        in_place = not self._work.trains and i > read_again
        self._states[i] = self._states.pop(i - 1) if in_place else self._new()
        return self._states[i]

    def blocks(self, read: Sequence[Rows] = (), made: Sequence[Rows] = ()) -> Iterator[Block]:
        """Yields the blocks of a pass over all edges."""
        return self._store.blocks(self.n_edges, read, made)

    def give_sums(self, outgoing: Tensor, incoming: Tensor) -> None:
        """Takes the sums [N, H] of the edges that a layer reads, for the layer before."""
        self._sums = outgoing, incoming

    def take_sums(self) -> tuple[Tensor, Tensor]:
        """Returns the sums of the edges that the next layer read."""
        assert self._sums is not None, "the next layer has not been there"
        taken, self._sums = self._sums, None
        return taken

    def gradient_rows(self, i: int) -> Rows:
        """Makes room for the gradient of layer i's first product, in the place of its result."""
        # The last layer made no state.
        return self._states.pop(i + 1) if i + 1 in self._states else self._new()

    def give_gradient(self, rows: Rows, columns: Tensor, *, is_own: bool) -> None:
        """Stores the gradient of a layer's first product, and the product's weights [H, ...], with
        the columns of the inputs first. is_own: they are the pass's own copy, not the parameters.
        """
        if not self.reads_encoded:
            self._gradients.clear()
        columns = columns[:, : self.n_inputs * self._hidden]
        own = columns if is_own or self._work.weights_stay else columns.clone()
        self._gradients.append(_Gradient(rows, *own.split(self._hidden, dim=1)))

    @property
    def gradient_after(self) -> Rows:
        """Returns the gradient of the next layer's first product."""
        return self._gradients[-1].rows

    @property
    def weight_after(self) -> Tensor:
        """Returns the weight [H, H] of the next layer's first product for its edges."""
        return self._gradients[-1].of_state

    def from_next(self, gradient: Tensor) -> Tensor:
        """Returns what the next layer adds to the gradient of its edges: [M, H], in a buffer."""
        return self._product("gradient of edges", gradient, self.weight_after)

    def all_gradients(self) -> list[Rows]:
        """Lists the gradients of the first products of all layers, the last layer's first."""
        return [gradient.rows for gradient in self._gradients]

    def of_encoded(self, gradients: Sequence[Tensor], place: Tensor | None, rows: slice) -> Tensor:
        """Returns the gradient of these `rows` of the encoded edges, [M, H], from their
        `all_gradients`. Fused launches write it to `place`, the edges' memory, if given.
        """
        gradients = [gradient[rows] for gradient in gradients]
        weights = [one.of_encoded for one in self._gradients if one.of_encoded is not None]
        dtype, width = self._work.dtype, self._hidden
        if fused.usable(gradients[0].device, dtype, width, 1):
            total = torch.empty_like(gradients[0]) if place is None else place[rows]
            terms = [*gradients[: len(weights)], gradients[-1]], [*weights, self.weight_after]
            fused.products(*terms, None, [total], dtype, transposed=True, written=1)
            return total
        total = self.from_next(gradients[-1])
        if weights:
            read_again = accumulable(total).new_zeros(total.shape)
            for values, weight in zip(gradients, weights, strict=True):
                read_again += self._product("gradient of input", values, weight)
            total += read_again
        return total

    def free(self) -> None:
        """Forgets all rows: a graph of autograd, which holds them, may live until the next pass."""
        self._states.clear()
        self._gradients.clear()

    def _product(self, name: str, values: Tensor, weight: Tensor) -> Tensor:
        out = self._work.rows(name, len(values), weight.shape[1])
        weights = [weight.to(out.dtype)]
        passes_for(out.device, out.dtype).multiply([values], weights, None, out)
        return out

    def _new(self) -> Rows:
        work = self._work
        return self._store.new(self.n_edges, self._hidden, work.dtype, work.device)

    def state(self, i: int) -> Rows:
        """Returns state i; raises RuntimeError if a gradient has taken its place."""
        if i not in self._states:
            raise RuntimeError("the edges' states are gone: a backward pass can be run once")
        return self._states[i]


class Encoded:
    """Encoded nodes [M, H], which every layer reads, and their gradient summed over layers."""

    def __init__(self, values: Tensor) -> None:
        self.values = values.detach()
        self._gradient: Tensor | None = None

    def add(self, rows: slice, part: Tensor) -> None:
        total, adds = self.total()
        (total if adds else total.zero_())[rows] += part

    def total(self) -> tuple[Tensor, bool]:
        """Returns where the gradient is summed, and whether something is there already."""
        adds = self._gradient is not None
        if self._gradient is None:
            dtype = torch.promote_types(self.values.dtype, torch.float32)
            self._gradient = torch.empty_like(self.values, dtype=dtype)
        return self._gradient, adds

    def take(self) -> Tensor:
        """Returns the sum over all layers; the next pass starts anew."""
        taken, self._gradient = self._gradient, None
        return torch.zeros_like(self.values) if taken is None else taken
