"""Launches passes over whole rows and over nodes on GPUs (triton_*.py), in the layout of
schedule.py, counted by work.py. Shapes: M rows, F features, N nodes, H = hidden.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bigtrk.models.edges import schedule, triton_passes, work
from bigtrk.models.edges.schedule import WholeRows
from bigtrk.models.protocol import Ends


class NextLayer(NamedTuple):
    """The next layer's first product: gradient [M, H], weight [H, H], both ends' gradients."""

    after: Tensor
    of_state: Tensor
    outer: Ends


class Term(NamedTuple):
    """Rows grads, values [N, H]: grads.T @ values is a weight's gradient, sum(grads) a bias's."""

    grads: Tensor
    values: Tensor
    of_weight: Tensor
    of_bias: Tensor | None = None


def usable(device: torch.device, dtype: torch.dtype, hidden: int, layers: int) -> bool:
    """Whether these passes compute an MLP of `layers` linear layers on rows of `dtype`. They
    multiply float32 in tf32, so not if NVIDIA_TF32_OVERRIDE=0 forbids that.
    """
    if dtype == torch.float32 and os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return False
    on_gpu = work.counts(device) or triton_passes.usable(device, dtype)
    return on_gpu and schedule.layer_tile(hidden, layers, dtype, capability(device)) is not None


@dataclass(frozen=True)
class WholeMLP:
    """An MLP over whole rows, multiplied in `dtype`. read: a layer's edges and, if it reads them,
    the encoded edges, [M, H]; or the rows [M, F] of an encoder or decoder. weights: weights and
    biases in turn; a layer's first bias is in its `ends`. norms: for each layer of width H, whether
    a LayerNorm follows. n_outputs: the outputs of a decoder's last linear layer.
    """

    read: Sequence[Tensor]
    weights: Sequence[Tensor]
    norms: tuple[bool, ...]
    tile: WholeRows
    dtype: torch.dtype
    ends: Ends | None = None
    n_outputs: int = 0
    stages: int = 1

    @property
    def hidden(self) -> int:
        return len(self.weights[0])

    @property
    def rows_of_program(self) -> int:
        """The number of rows that a program of the backward pass computes."""
        return schedule.rows_of_program(len(self.read[0]), self.hidden, self.tile.height)

    def forward(self, made: Tensor, layout: tuple[int, int, int]) -> None:
        """Writes the last layer's rows [M, H], or the outputs, to `made`. layout: rows of a
        program, rows of a tile, number of warps.
        """
        self._launch("whole_forward", self._flops(len(self.norms)), layout, [made])

    def backward(
        self,
        given: NextLayer | None,
        made: Tensor,
        gradient: Tensor | None,
        grads: Sequence[Tensor],
        adds: bool,
    ) -> None:
        """Writes `gradient` (unless None) as whole_backward says. Writes, or with `adds` adds, the
        gradients of weights to `grads`, in the weights' order, except a layer's first bias.
        """
        (n_rows, width), hidden, layers = self.read[0].shape, self.hidden, len(self.norms)
        first_bias, inputs = 0 if self.ends is None else 1, len(self.read)
        lines = (inputs + layers - 1) * hidden + layers - first_bias + self.n_outputs
        layout = self.rows_of_program, *self.tile[:2]
        partials = made.new_empty(-(-n_rows // layout[0]), lines, hidden, dtype=torch.float32)
        for summed, lowest in self.tile.launches(layers):
            flops = self._flops(layers - first_bias, summed, layers - 1 - lowest, given is not None)
            after = given and (*given[:2], given.of_state.stride(0), *given.outer[:2])
            tensors = after, made, None if lowest else gradient, partials
            sums = {"summed": summed, "lowest": lowest}
            self._launch("whole_backward", flops, layout, tensors, [lines], **sums)
        if not self.tile.sums_first:
            assert gradient is not None, "a layer's edges have one"
            square = schedule.width_of(hidden), schedule.rows_at_once(self.dtype)
            tile = *square, schedule.SUM_ROWS_WARPS
            sum_products([gradient] * inputs, self.read, partials, layout[0], 0, self.dtype, tile)
        of_inputs = grads[0][:, : inputs * width].split(width, dim=1)
        of_biases = list(grads[1 + 2 * first_bias : 2 * layers : 2])
        of_biases += grads[-2].unbind() if self.n_outputs else []
        sum_partials(partials, [*of_inputs, *grads[2 : 2 * layers : 2]], of_biases, adds)

    def _flops(
        self, computed: int, summed: Sequence[bool] = (), through: int = 0, given: bool = False
    ) -> float:
        """Counts operations: the first `computed` layers forward, gradients of the `summed`
        weights, gradients passed `through` layers, and one more product if `given`.
        """
        n_rows, width = self.read[0].shape
        firsts = len(self.read) * ((computed > 0) + sum(summed[:1]))
        later = max(0, computed - 1) + through + sum(summed[1:]) + given
        return 2.0 * n_rows * self.hidden * (firsts * width + later * self.hidden)

    def _launch(
        self,
        name: str,
        flops: float,
        layout: tuple[int, int, int],
        tensors: Sequence[Any],
        n_lines: Sequence[int] = (),
        **named: Any,
    ) -> None:
        weights = tuple(weight.detach() for weight in self.weights)
        (n_rows, n_inputs), (of_program, height, warps) = self.read[0].shape, layout
        grid, ends = (-(-n_rows // of_program),), self.ends and self.ends[:4]
        sizes = n_rows, of_program, weights[0].stride(0), *n_lines
        work.launch(
            ("whole_rows", name),
            grid,
            weights[0],
            flops,
            *(tuple(self.read), ends, weights, *tensors, *sizes),
            norms=self.norms,
            n_inputs=n_inputs,
            n_outputs=self.n_outputs,
            bf16=self.dtype == torch.bfloat16,
            hidden=self.hidden,
            height=height,
            num_warps=warps,
            num_stages=self.stages,
            maxnreg=schedule.REGISTERS,
            **named,
        )


def of_layer(inputs: Sequence[Tensor], ends: Ends, weights: Sequence[Tensor]) -> WholeMLP:
    """Makes the MLP of a layer's edges; call it only if `usable` is true."""
    rows, layers = inputs[0], len(weights) // 2
    tile = schedule.layer_tile(rows.shape[1], layers, rows.dtype, capability(rows.device))
    assert tile is not None
    norms = (*[True] * (layers - 1), False)
    return WholeMLP(inputs, weights, norms, tile, rows.dtype, ends)


def forward(inputs: Sequence[Tensor], ends: Ends, weights: Sequence[Tensor], made: Tensor) -> None:
    """Writes the edges' next state [M, H] to `made`, which may be the tensor of their state."""
    (n_rows, hidden), dtype = made.shape, made.dtype
    is_wide = 64 < hidden < 128 or (hidden > 32 and dtype == torch.float32)
    of_program, height = schedule.forward_rows_of_program(n_rows), schedule.rows_at_once(dtype)
    of_layer(inputs, ends, weights).forward(made, (of_program, height, 8 if is_wide else 4))


def backward(
    inputs: Sequence[Tensor],
    ends: Ends,
    weights: Sequence[Tensor],
    made: Tensor,
    given: NextLayer | None,
    gradient: Tensor,
    grads: Sequence[Tensor],
    adds: bool,
) -> None:
    """Writes the `gradient` [M, H] of the edges' first product, which may overwrite `made`. made:
    the edges' new state or, if `given` is None, the gradient of the last product.
    """
    of_layer(inputs, ends, weights).backward(given, made, gradient, grads, adds)


def weights_backward(terms: Sequence[Term], dtype: torch.dtype) -> None:
    """Writes each term's gradients of its weight and bias; biases are summed in float32."""
    terms = sorted(terms, key=lambda term: term.of_bias is None)
    grads, values, *_ = zip(*terms, strict=True)
    biases = [term.of_bias for term in terms if term.of_bias is not None]
    n_rows, hidden = grads[0].shape
    size = schedule.node_tile(hidden, dtype)
    rows_of_part = size.height * max(1, -(-n_rows // (size.height * schedule.NODE_PARTS)))
    parts, lines = -(-n_rows // rows_of_part), len(terms) * hidden + len(biases)
    partials = grads[0].new_empty(parts, lines, hidden, dtype=torch.float32)
    tile = size.side, size.height, schedule.NODE_SUM_WARPS
    sum_products(grads, values, partials, rows_of_part, len(biases), dtype, tile)
    sum_partials(partials, [term.of_weight for term in terms], biases, adds=False)


def sum_products(
    grads: Sequence[Tensor],
    values: Sequence[Tensor],
    partials: Tensor,
    rows_of_part: int,
    biases: int,
    dtype: torch.dtype,
    tile: tuple[int, int, int],
) -> None:
    """Launches triton_nodes.of_weights. tile: side of a square, rows at a time, number of warps."""
    (parts, n_lines, hidden), (side, height, warps) = partials.shape, tile
    n_rows, squares = len(grads[0]), (-(-hidden // side)) ** 2
    work.launch(
        ("nodes", "of_weights"),
        (len(grads) * squares, parts),
        partials,
        2.0 * len(grads) * n_rows * hidden**2,
        *(tuple(grads), tuple(values), partials, n_rows, rows_of_part, n_lines),
        biases=biases,
        bf16=dtype == torch.bfloat16,
        hidden=hidden,
        side=side,
        depth=height,
        num_warps=warps,
        num_stages=schedule.SUM_STAGES,
    )


def products(
    rows_of: Sequence[Tensor],
    weights: Sequence[Tensor],
    bias: Tensor | None,
    made: Sequence[Tensor],
    dtype: torch.dtype,
    **options: Any,
) -> None:
    """Writes to each `made` [M, H] the sum of products of all `rows_of` with weights of its own."""
    strides = tuple(weight.stride(0) for weight in weights)
    pointers = tuple(rows_of), tuple(weights), strides, bias, tuple(made)
    size = schedule.node_tile(made[0].shape[1], dtype)
    _launch_nodes("products", dtype, pointers, (len(made[0]),), len(weights), size, **options)


def launch_mlp(
    dtype: torch.dtype,
    rows_of: Sequence[Tensor],
    weights: Sequence[Tensor],
    made: Tensor | None,
    sizes: tuple[int, int],
    given: Tensor | None = None,
    read: Sequence[Tensor] = (),
    grads: Sequence[Tensor] | None = None,
    of_sums: Sequence[Tensor] = (),
    copy: Tensor | None = None,
) -> None:
    """Launches triton_nodes.update. sizes: number of rows, and of owned rows."""
    first, bias, *others = weights
    layers = len(others) // 2
    n_products = len(rows_of) + layers
    if grads is not None:
        n_products += len(of_sums) + layers
    written = tuple(read), None if grads is None else tuple(grads), tuple(of_sums)
    linears = first, first.stride(0), bias, tuple(others)
    size = schedule.node_tile(len(first), dtype)
    if layers > 1 and size.width > 64:  # at 32, an A100 spills 4 bytes
        size = size._replace(depth=16)
    pointers = tuple(rows_of), *linears, made, copy, given, *written
    _launch_nodes("update", dtype, pointers, sizes, n_products, size)


def _launch_nodes(
    name: str,
    dtype: torch.dtype,
    pointers: Sequence[Any],
    sizes: Sequence[int],
    n_products: int,
    size: schedule.NodeTile,
    **options: Any,
) -> None:
    """Launches a kernel of triton_nodes.py over sizes[0] rows; counts `n_products` products."""
    (of, *_), n_rows = pointers[0], sizes[0]
    hidden = of.shape[1]
    work.launch(
        ("nodes", name),
        (-(-n_rows // size.height),),
        of,
        2.0 * n_rows * n_products * hidden**2,
        *(*pointers, *sizes),
        bf16=dtype == torch.bfloat16,
        hidden=hidden,
        width=size.width,
        height=size.height,
        depth=size.depth,
        num_warps=size.warps,
        num_stages=schedule.NODE_STAGES,
        maxnreg=schedule.REGISTERS,
        **options,
    )


def sum_partials(
    partials: Tensor, of_weights: Sequence[Tensor], of_biases: Sequence[Tensor], adds: bool
) -> None:
    """Sums partial gradients [programs, lines, H] over programs, and writes (or with `adds` adds)
    the sums. Lines: H for each weight [H, H or less], then one for each bias.
    """
    programs, n_lines, hidden = partials.shape
    strides, widths = zip(*((one.stride(0), one.shape[1]) for one in of_weights), strict=True)
    work.launch(
        ("kernels", "sum_partials"),
        (n_lines,),
        partials,
        0.0,
        *(partials, tuple(of_weights), strides, widths, tuple(of_biases), programs, n_lines),
        adds=adds,
        hidden=hidden,
        width=schedule.width_of(hidden),
        num_warps=schedule.SUM_WARPS,
    )


@cache
def capability(device: torch.device) -> int:
    """Returns a GPU's compute capability (major number), but 7 if its blocks have less shared
    memory than an A100's. Without a GPU, launches are only counted: 9.
    """
    if device.type != "cuda":
        return 9
    card = torch.cuda.get_device_properties(device)
    shared = getattr(card, "shared_memory_per_block_optin", 0)
    return int(card.major) if shared >= schedule.SHARED_BYTES else 7
