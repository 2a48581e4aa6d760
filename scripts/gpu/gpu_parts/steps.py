"""Training steps next to the plain model: times, memory, and shares of the card's data sheet;
and trainings that are repeated, whose weights have the same bits.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.cost.footprint import footprint
from bigtrk.cost.machines import DATA_SHEETS
from bigtrk.machine import accelerator
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import InteractionGNNConfig
from scripts.bench.bench_hot_path import F, G
from scripts.gpu.gpu_parts.extent import EVENT_1000, Edges, Extent, Row
from tests.oracle.interaction_gnn import ReferenceGNN

# The network of PyG's operations is the plain model: as it is, and compiled by torch.
OURS, PLAIN = ("bigtrk bf16", "bigtrk fp32"), ("PyG fp32", "PyG bf16")
COMPILED = "PyG compiled fp32", "PyG compiled bf16"
Step = Callable[[], object]


def steps(name: str, sides: Sequence[str], extent: Extent) -> Row:
    """Measures sides on a graph, at each width."""
    edges = extent.graph(name)
    rows = [row_of(side, hidden, edges, extent) for hidden in extent.widths for side in sides]
    size = {"nodes": edges.n_nodes, "edges": edges.edge_index.shape[1]}
    return {"graph": name, "origin": edges.origin, **size, "rows": rows}


def row_of(side: str, hidden: int, edges: Edges, extent: Extent) -> Row:
    """Measures a side; without figures where the card's memory ran out."""
    row: Row = {"side": side, "hidden": hidden, "seconds": None, "peak_bytes": None}
    try:
        with extent.as_on_card():
            measured = measure(side, hidden, edges, extent)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return row
    return {**row, **measured, **shares(side, hidden, edges, measured["seconds"], extent)}


def measure(side: str, hidden: int, edges: Edges, extent: Extent) -> dict[str, float]:
    """Returns the seconds of a step, and its peak of bytes above weights and inputs."""
    on_card = not extent.dry
    if on_card:
        torch.cuda.empty_cache()
    step = step_of(side, hidden, edges, extent)
    if on_card:
        torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated() if on_card else 0
    seconds = extent.seconds(step)
    peak = torch.cuda.max_memory_allocated() - base if on_card else 0
    return {"seconds": seconds, "peak_bytes": float(peak)}


def step_of(side: str, hidden: int, edges: Edges, extent: Extent) -> Step:
    """Makes a side's step: forward and backward pass, on the device."""
    torch.manual_seed(0)
    device, edge_index = extent.device, edges.edge_index.to(extent.device)
    x, edge_features = (
        torch.randn(n, width, device=device)
        for n, width in ((edges.n_nodes, F), (edge_index.shape[1], G))
    )
    labels = torch.zeros(edge_index.shape[1], device=device)
    family, *_, precision = side.split()
    config = config_of(hidden, precision, extent)
    inputs = x, edge_features, edge_index
    if family == "bigtrk":
        own = InteractionGNN(config, F, G).to(device)
        return partial(pass_over, own, (*inputs, edges.n_nodes, no_exchange), labels, nullcontext)
    plain: nn.Module = ReferenceGNN(config, F, G).to(device)
    if "compiled" in side:
        torch.compiler.reset()
        # A dry run compiles no machine code.
        plain = torch.compile(plain, dynamic=False, backend="eager" if extent.dry else "inductor")  # type: ignore[assignment]
    mixed = partial(torch.autocast, device.type, torch.bfloat16)
    return partial(pass_over, plain, inputs, labels, mixed if precision == "bf16" else nullcontext)


def config_of(hidden: int, precision: str, extent: Extent) -> InteractionGNNConfig:
    sizes = {"hidden": hidden, "layers": extent.layers, "precision": precision}
    return InteractionGNNConfig.model_validate(sizes)


def pass_over(
    model: nn.Module, inputs: tuple[Any, ...], labels: Tensor, precision: Callable[[], Any]
) -> None:
    """Runs one forward and backward pass."""
    with precision():
        logits = model(*inputs)
    binary_cross_entropy_with_logits(logits.float(), labels).backward()
    model.zero_grad()


def shares(side: str, hidden: int, edges: Edges, seconds: float, extent: Extent) -> Row:
    """Returns what a step of ours has of the data sheet: of products that none computes twice, and
    of the bytes that its own passes move.
    """
    sheet = DATA_SHEETS.get(accelerator())
    if not side.startswith("bigtrk") or sheet is None:
        return {}
    precision = side.split()[-1]
    config = config_of(hidden, precision, extent)
    once = config.model_copy(update={"recompute": "none"})
    sizes = [edges.edge_index.shape[1], edges.n_nodes, edges.n_nodes, 1.0]
    counted = footprint(config, F, G, cut=False, on_gpu=True)
    flops = float(footprint(once, F, G, cut=False).flops @ sizes)
    moved = float(counted.traffic @ sizes)
    return {
        "mfu": flops / seconds / getattr(sheet, precision),
        "bandwidth": moved / seconds / sheet.bandwidth,
    }


STEPS = 3


def repeated(extent: Extent) -> Row:
    """Trains twice in each precision."""
    edges = extent.graph(EVENT_1000)
    torch.use_deterministic_algorithms(True)
    rows = []
    for precision in ("fp32", "bf16"):
        one, other = (trained(precision, edges, extent) for _ in range(2))
        same = all(torch.equal(weight, again) for weight, again in zip(one, other, strict=True))
        rows.append({"precision": precision, "steps": repeated_steps(extent), "same_bits": same})
    return {"origin": edges.origin, "rows": rows}


def repeated_steps(extent: Extent) -> int:
    return 1 if extent.dry else STEPS


def trained(precision: str, edges: Edges, extent: Extent) -> list[Tensor]:
    """Returns the weights after some steps, on the CPU."""
    torch.manual_seed(0)
    device, edge_index = extent.device, edges.edge_index.to(extent.device)
    n_edges = edge_index.shape[1]
    x, edge_features = (
        torch.randn(n, width).to(device) for n, width in ((edges.n_nodes, F), (n_edges, G))
    )
    labels = (torch.arange(n_edges, device=device) % 3 == 0).float()
    model = InteractionGNN(config_of(extent.widths[0], precision, extent), F, G).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with extent.as_on_card():
        for _ in range(repeated_steps(extent)):
            logits = model(x, edge_features, edge_index, edges.n_nodes, no_exchange)
            binary_cross_entropy_with_logits(logits, labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def found_at(part: Row, side: str, hidden: int) -> Iterator[Row]:
    """Yields the row of a side at a width, if it was measured."""
    yield from (
        r for r in part["rows"] if (r["side"], r["hidden"]) == (side, hidden) and r["seconds"]
    )
