"""The passes over edges in Triton; float32 and bfloat16 on GPUs."""

import os
import shutil
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from bigtrk.cards import problems, takes_plain_passes
from bigtrk.console import warn_once
from bigtrk.models.kernels import counted, plain
from bigtrk.models.kernels.incidence import incidence_of
from bigtrk.models.kernels.plain import Ends
from bigtrk.models.kernels.schedule import FEATURE_WARPS, SUM_WARPS, feature_tile, summed_columns
from bigtrk.models.kernels.work import Shape, assumed_edges

TYPES = torch.float32, torch.bfloat16
# Rows of a wide one, and wide rows that are summed first. Of more than these torch takes a buffer,
# 128 MiB for a chunk of 64 MiB on an H200 (by its own formula, and by the peaks of trainings).
_SIDE_BY_SIDE, _FIRST = 64, 32

# torch has kernels for these.
add_rows = plain.add_rows
multiply, add_product = plain.multiply, plain.add_product


def usable(device: torch.device, dtype: torch.dtype) -> bool:
    """Says whether these kernels compute rows of `dtype` on `device`."""
    return device.type == "cuda" and dtype in TYPES and _installed() and not _is_plain(device)


@cache
def _is_plain(device: torch.device) -> bool:
    """Says whether a GPU has no compiled passes, once aloud."""
    plain_passes = takes_plain_passes(device)
    if plain_passes:
        for topic, text in problems(several_hosts=False).items():
            warn_once(topic, text)
    return plain_passes


@cache
def _installed() -> bool:
    """Says whether Triton, which comes with torch for GPUs, and its C compiler are there.

    Triton compiles its launchers. If CC is set, it takes all of it for the name of a program and
    looks for no other.
    """
    if find_spec("triton") is None:
        return False
    named = os.environ.get("CC")
    compilers = ("gcc", "clang") if named is None else (named,)
    if any(map(shutil.which, compilers)):
        return True
    tried = " nor ".join(map(repr, compilers))
    warn_once("Triton", f"plain passes on GPUs: no C compiler for Triton, which tries {tried}")
    return False


def norm_relu(z: Tensor, ends: Ends | None, out: Tensor, rstd: Tensor) -> None:
    """Computes plain.norm_relu."""
    _call("norm_relu", z, *(ends or [None] * 4)[:4], out, rstd)


def norm_relu_backward(grad: Tensor, normal: Tensor, rstd: Tensor, out: Tensor) -> None:
    """Computes plain.norm_relu_backward."""
    _call("norm_relu_backward", grad, normal, rstd, out)


def relu_backward(grad: Tensor, e: Tensor, ends: Ends | None, out: Tensor) -> None:
    """Computes plain.relu_backward."""
    _call("relu_backward", grad, e, *(ends or [None] * 4)[:4], out)


def add_sum(values: Tensor, total: Tensor) -> None:
    """Computes plain.add_sum. Of narrow rows torch's sum reads half a TB/s on an H200, so that many
    are taken as fewer wide ones first: 2.6 ms of a step of 6.8 M edges where it was 11.5 ms.
    """
    n_sums = len(values) // (_SIDE_BY_SIDE * _FIRST)
    if n_sums < 2:
        plain.add_sum(values, total)
        return
    n_rows = n_sums * _FIRST * _SIDE_BY_SIDE
    wide = values[:n_rows].reshape(n_sums, _FIRST, -1).sum(1, dtype=total.dtype).sum(0)
    total += wide.view(_SIDE_BY_SIDE, -1).sum(0)
    if n_rows < len(values):
        total += values[n_rows:].sum(0, dtype=total.dtype)


def add_to_nodes(values: Tensor, ends: Ends) -> None:
    """Computes plain.add_to_nodes."""
    sum_at_ends(values, ends, adds=True)


def sum_at_ends(
    values: Tensor,
    sums: Ends,
    adds: bool,
    others: Tensor | None = None,
    sums_of_others: Ends | None = None,
) -> None:
    """Sums edges [M, H] at their sources and destinations in `sums` [N, H], float32, and `others`
    of the same edges in `sums_of_others`. With `adds` they are added to what is there.
    """
    n_nodes, hidden = sums.of_source.shape
    incidence = incidence_of(sums.edge_index, n_nodes)
    if counted.counts(values.device):
        edges = assumed_edges(len(values))
        streams = 1 if others is None else 2
        shape = Shape(hidden, 1, 1, values.dtype)
        counted.note(shape.sum_at_ends(n_nodes, edges, streams=streams, adds=adds))
        return
    from bigtrk.models.kernels import triton_sums

    width = summed_columns(hidden, values.dtype)
    parts = -(-hidden // width) * (1 if others is None else 2)
    with torch.cuda.device_of(values):
        triton_sums.sum_at_ends[(2 * n_nodes, parts)](
            values,
            others,
            *incidence.by_source,
            *incidence.by_destination,
            incidence.turns,
            *sums[:2],
            *(sums_of_others or (None, None))[:2],
            sums.first,
            len(values),
            adds=adds,
            hidden=hidden,
            width=width,
            num_warps=SUM_WARPS,
        )


def _call(name: str, *tensors: Tensor | None) -> None:
    # Imported here, since torch for CPUs has no Triton.
    from bigtrk.models.kernels import triton_kernels

    rows = tensors[0]
    assert rows is not None
    assert all(tensor is None or tensor.is_contiguous() for tensor in tensors), name
    n_rows, hidden = rows.shape
    height, width = feature_tile(hidden)
    kernel = getattr(triton_kernels, name)[(-(-n_rows // height),)]
    with torch.cuda.device_of(rows):  # Triton starts on the current device
        kernel(
            *tensors,
            n_rows,
            hidden=hidden,
            height=height,
            width=width,
            num_warps=FEATURE_WARPS,
        )
