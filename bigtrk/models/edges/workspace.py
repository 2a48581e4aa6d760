"""Buffers that one pass of the model writes to again and again.

Fresh memory costs a CPU more than what is computed in it: the system clears each page.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from bigtrk.models.edges.work import as_on_gpu

Recompute = Literal["none", "layer", "chunk", "offload"]
# Bytes of a chunk's features, several buffers of which stay in a core's cache. With 300,000 edges,
# hidden 64, float32 takes 3.3 s at half a megabyte and 3.9 s at one; bfloat16 1.6 s, and 2.9 s at a
# quarter. A GPU starts fewer operations with larger chunks: on an H200 a step of 6.8 M edges in
# bfloat16 took 0.40 s, 0.18 s and 0.13 s at 16, 64 and 256 MiB, within 8.7, 9.2 and 12.1 GiB.
# Edges on the host come in blocks of a chunk, of which a GPU holds several: smaller ones.
CPU_BYTES, GPU_BYTES, HOST_BYTES = 2**19, 2**26, 2**24


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
    """The buffers of a forward pass and its backward pass (if it `trains`); rows have `dtype`.

    keeps: products are kept for the backward pass, instead of being computed anew.
    """

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

    def rows(self, name: str, n_rows: int, width: int) -> Tensor:
        """Returns a buffer [n_rows, width] of any content; that of the last call with this name."""
        return self._buffer(name, n_rows, width, self.dtype)

    def zeros(self, name: str, n_rows: int, width: int) -> Tensor:
        """Returns a buffer [n_rows, width] of zeros, float32 at least, to sum in."""
        return self._buffer(name, n_rows, width, self.sums).zero_()

    def sums_of_rows(self, name: str, n_rows: int, width: int = 1) -> Tensor:
        """Returns a buffer [n_rows, width], float32 at least, with any content."""
        return self._buffer(name, n_rows, width, self.sums)

    def _buffer(self, name: str, n_rows: int, width: int, dtype: torch.dtype) -> Tensor:
        found = self._buffers.get((name, width))
        if found is not None and len(found) >= n_rows:
            return found[:n_rows]
        made = torch.empty(n_rows, width, dtype=dtype, device=self.device)
        if self._chunk is not None:  # buffers of all edges would be most of the memory
            self._buffers[name, width] = made
        return made
