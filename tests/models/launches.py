"""Counts what a training step of the fused layers starts on a device, by its named ranges.

    TRITON_INTERPRET=1 python -m tests.models.launches

prints it as JSON: for each of COUNTED what each range started.
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
from bigtrk.models.kernels import fused, schedule, triton_passes
from bigtrk.models.protocol import no_exchange
from tests.models.fused import DEVICE
from tests.models.graphs import make_graph
from tests.models.test_interaction_gnn import make_model

# Options of the model, and edges.
COUNTED: list[tuple[dict[str, Any], int]] = [
    ({}, 20),
    ({}, 100),
    ({"precision": "bf16"}, 20),
    ({"mlp_layers": 1}, 20),
    ({"mlp_layers": 3, "concatenate": False}, 20),
]
# What only gives a tensor its shape starts nothing on a device.
STARTS_NOTHING = {"empty", "new_empty", "empty_like", "empty_strided", "detach"}
OF_EDGES = re.compile(r"layer \d edge(, backward)?$")


class _Operations(TorchDispatchMode):
    """Notes what starts work on a device, by the named range that it is started in."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, list[str]] = {}

    def note(self, name: str) -> None:
        self.names.setdefault(tracing.place(), []).append(name)

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
    """Names what a step's passes over the edges of each layer start, kernels and torch's own."""
    # As few rows in a block as a tile has: several programs.
    with patch.object(schedule, "BLOCK_BYTES", 1), patch.object(fused, "usable", usable_everywhere):
        model = make_model(**options).to(DEVICE)
        x, edge_features, edge_index = (values.to(DEVICE) for values in make_graph(12, n_edges))
        inputs = x.float(), edge_features.float(), edge_index, len(x), no_exchange
        model(*inputs).sum().backward()  # sorts the edges
        operations = _Operations()
        with _noted(operations), operations:
            model(*inputs).sum().backward()
    return {place: names for place, names in operations.names.items() if OF_EDGES.search(place)}


@contextmanager
def _noted(operations: _Operations) -> Iterator[None]:
    """Has all kernels of the fused passes note their launches."""
    from bigtrk.models.kernels import triton_edges, triton_partials, triton_sums

    kernels = (
        (triton_edges, "forward"),
        (triton_edges, "backward"),
        (triton_partials, "sum_partials"),
        (triton_sums, "sum_at_ends"),
    )
    with ExitStack() as stack:
        for module, name in kernels:
            noting = _Launched(getattr(module, name), operations)
            stack.enter_context(patch.object(module, name, noting))
        yield


if __name__ == "__main__":
    print(json.dumps([[options, edges, started(options, edges)] for options, edges in COUNTED]))
