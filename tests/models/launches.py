"""Counts what a training step's fused layers start on a device: of edges, and beside these.

    TRITON_INTERPRET=1 python -m tests.models.launches

prints it as JSON: for each of COUNTED what each part of a layer started.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from bigtrk import tracing
from bigtrk.models.edges import fused, native, schedule, triton_passes
from bigtrk.models.edges.passes import Interact, Layer
from bigtrk.models.protocol import no_exchange
from tests.models.fused import DEVICE
from tests.models.graphs import make_graph
from tests.models.test_interaction_gnn import make_model

# Options of the model, and edges.
COUNTED: list[tuple[dict[str, Any], int]] = [
    ({}, 20),
    ({}, 100),
    ({"precision": "bf16"}, 20),
    ({"precision": "bf16", "hidden": 16}, 20),
    ({"precision": "bf16", "hidden": 80}, 20),
    ({"mlp_layers": 1}, 20),
    ({"mlp_layers": 3, "concatenate": False, "recompute": "layer"}, 20),
    ({"pt_head": True, "shared_weights": True}, 20),
    ({"in_out": False, "recompute": "none"}, 20),
]
# What only gives a tensor its shape starts nothing on a device.
STARTS_NOTHING = {"empty", "new_empty", "empty_like", "empty_strided", "detach", "promote_types"}
# A layer's pass, and in it the edges or the decoder; all else is of nodes.
PART = re.compile(r"(layer \d) pass(, backward)?(?:, (?:layer \d )?(edge|decoder))?")


class _Operations(TorchDispatchMode):
    """Notes what the layers' passes start on a device, by the part that starts it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, list[str]] = {}

    def note(self, name: str) -> None:
        if part := PART.search(tracing.place()):
            layer, way, what = part.groups(default="")
            self.names.setdefault(f"{layer} {what or 'node'}{way}", []).append(name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if not func.is_view and name not in STARTS_NOTHING:
            self.note(name)
        return func(*args, **(kwargs or {}))


class _Launched:
    """A kernel that notes its launches."""

    def __init__(self, kernel: Any, operations: _Operations) -> None:
        self._kernel, self._operations = kernel, operations

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        self._operations.note(self._kernel.__name__)

        def launch(*arguments: Any, **options: Any) -> None:
            with _disable_current_modes():  # the interpreter has operations of its own
                self._kernel[grid](*arguments, **options)

        return launch


def usable_everywhere(
    device: torch.device,  # noqa: ARG001
    dtype: torch.dtype,
    hidden: int,  # noqa: ARG001
    layers: int,
) -> bool:
    """Stands for fused.usable: any device has the fused passes."""
    return dtype in triton_passes.TYPES and layers <= schedule.MOST_LAYERS


def started(options: dict[str, Any], n_edges: int) -> dict[str, list[str]]:
    """Names what a step's layers start, kernels and torch's own operations, by their parts:
    "layer 0 edge", "layer 0 node, backward", "layer 2 decoder" ...
    """
    # As few rows in a block as a tile has: several programs.
    with patch.object(schedule, "BLOCK_BYTES", 1), _as_on_gpu():
        model = make_model(**options).to(DEVICE)
        x, edge_features, edge_index = (values.to(DEVICE) for values in make_graph(12, n_edges))
        inputs = x.float(), edge_features.float(), edge_index, len(x), no_exchange
        model(*inputs).sum().backward()  # sorts the edges
        operations = _Operations()
        with _noted(operations), _passes_named(), operations:
            model(*inputs).sum().backward()
    return operations.names


def of_edges(parts: dict[str, list[str]]) -> dict[str, list[str]]:
    """Keeps what the fused passes over edges start, of what `started` found."""
    return {part: names for part, names in parts.items() if " edge" in part}


@contextmanager
def _as_on_gpu() -> Iterator[None]:
    """Has nodes and the decoder, too, computed as a GPU does."""
    with (
        patch.object(fused, "usable", usable_everywhere),
        patch.object(native, "usable", lambda *_: False),
        patch.object(triton_passes, "usable", lambda _, dtype: dtype in triton_passes.TYPES),
    ):
        yield


@contextmanager
def _noted(operations: _Operations) -> Iterator[None]:
    """Has all kernels note their launches."""
    from bigtrk.models.edges import (
        triton_edges,
        triton_kernels,
        triton_partials,
        triton_sums,
        triton_whole_rows,
    )

    kernels = (
        (triton_edges, "forward"),
        (triton_edges, "backward"),
        (triton_whole_rows, "whole_forward"),
        (triton_whole_rows, "whole_backward"),
        (triton_whole_rows, "sum_inputs"),
        (triton_whole_rows, "sum_products"),
        (triton_partials, "sum_partials"),
        (triton_sums, "sum_at_ends"),
        (triton_kernels, "norm_relu"),
        (triton_kernels, "norm_relu_backward"),
        (triton_kernels, "relu_backward"),
    )
    with ExitStack() as stack:
        for module, name in kernels:
            noting = _Launched(getattr(module, name), operations)
            stack.enter_context(patch.object(module, name, noting))
        yield


@contextmanager
def _passes_named() -> Iterator[None]:
    """Has each pass of a layer enter a range, which all that it starts is in."""
    forward, backward = Interact.forward, Interact.backward

    def named_forward(ctx: Any, layer: Layer, *inputs: Any) -> Any:
        with tracing.traced(f"layer {layer.i} pass"):
            return forward(ctx, layer, *inputs)

    def named_backward(ctx: Any, *gradients: Any) -> Any:
        with tracing.traced(f"layer {ctx.layer.i} pass, backward"):
            return backward(ctx, *gradients)

    with (
        patch.object(Interact, "forward", staticmethod(named_forward)),
        patch.object(Interact, "backward", staticmethod(named_backward)),
    ):
        yield


if __name__ == "__main__":
    print(json.dumps([[options, edges, started(options, edges)] for options, edges in COUNTED]))
