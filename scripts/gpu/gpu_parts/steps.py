"""Training steps next to the plain model: times, memory, and shares of the card's data sheet;
and trainings that are repeated, whose weights have the same bits.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from statistics import median
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
from bigtrk.training.cuda_graphs import Recorder, SmallPasses, steps_of
from scripts.bench.bench_hot_path import F, G
from scripts.gpu.gpu_parts.extent import EVENT_1000, Edges, Extent, Row
from tests.models.fused import Repeater
from tests.oracle.interaction_gnn import ReferenceGNN

# The network of PyG's operations is the plain model: as it is, and compiled by torch.
OURS, PLAIN = ("bigtrk bf16", "bigtrk fp32"), ("PyG fp32", "PyG bf16")
COMPILED = OURS[0], "PyG compiled bf16"  # ours again, since a ratio wants both by turns
TURNS = STEPS = 3
Step = Callable[[], object]


def steps(
    sides: Sequence[str], turns: int, widths: Sequence[int], name: str, extent: Extent
) -> Row:
    """Measures sides on a graph, at each width, by turns."""
    edges = extent.graph(name)
    size = {"nodes": edges.n_nodes, "edges": edges.edge_index.shape[1]}
    rows = [
        row
        for hidden in (extent.widths if extent.dry else widths)
        for row in by_turns(sides, hidden, 1 if extent.dry else turns, edges, extent)
    ]
    return {"graph": name, "origin": edges.origin, **size, "rows": rows}


def by_turns(
    sides: Sequence[str], hidden: int, turns: int, edges: Edges, extent: Extent
) -> Iterator[Row]:
    """Yields the medians of each side; no figures where the card's memory ran out."""
    made: dict[str, Step] = {}
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for side in [*sides] * turns:
        try:
            with extent.as_on_card():
                made[side] = made.get(side) or step_of(side, hidden, edges, extent)
                found[side].append(measure(made[side], extent))
        except torch.OutOfMemoryError:
            pass
    for side, measured in found.items():
        seconds, peak = map(median, zip(*measured, strict=True)) if measured else (None, None)
        row = {"side": side, "hidden": hidden, "seconds": seconds, "peak_bytes": peak}
        yield row | (shares(side, hidden, edges, seconds, extent) if seconds else {})


def measure(step: Step, extent: Extent) -> tuple[float, float]:
    """Returns the seconds of a step, and its peak of bytes above weights and inputs."""
    if extent.dry:
        return extent.seconds(step), 0.0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base, seconds = torch.cuda.memory_allocated(), extent.seconds(step)
    return seconds, float(torch.cuda.max_memory_allocated() - base)


def step_of(side: str, hidden: int, edges: Edges, extent: Extent) -> Step:
    """Makes a side's step: forward and backward pass, on the device."""
    device, inputs = extent.device, inputs_of(edges, extent)
    labels = torch.zeros(len(inputs[1]), device=device)
    family, *_, precision = side.split()
    config = config_of(hidden, precision, extent)
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


def mini_batches(extent: Extent) -> Row:
    """Measures steps of few edges without CUDA graphs and with them, which a dry run repeats."""
    edges, rows = extent.graph("1 k"), []
    for hidden in extent.widths:
        model = InteractionGNN(config_of(hidden, "bf16", extent), F, G).to(extent.device)
        inputs = *inputs_of(edges, extent), edges.n_nodes, no_exchange
        labels = torch.zeros(len(inputs[1]), device=extent.device)
        step = partial(pass_over, model, inputs, labels, nullcontext)
        with extent.as_on_card():
            ordinary, sums = extent.seconds(step), steps_of(model)
            assert sums, "all passes are fused"
            recorder: Any = Repeater() if extent.dry else Recorder(extent.device)
            model.forward = passes = SmallPasses(model, recorder, sums)  # type: ignore[method-assign]
            row = {"hidden": hidden, "seconds": ordinary, "with_graphs": extent.seconds(step)}
        rows.append(row | {"replayed": passes.turn > 0})
    return {"edges": edges.edge_index.shape[1], "rows": rows}


def inputs_of(edges: Edges, extent: Extent) -> tuple[Tensor, Tensor, Tensor]:
    """Draws the features of nodes and edges: with the edges, as a model takes them."""
    torch.manual_seed(0)
    sizes = (edges.n_nodes, F), (edges.edge_index.shape[1], G)
    x, edge_features = (torch.randn(size).to(extent.device) for size in sizes)
    return x, edge_features, edges.edge_index.to(extent.device)


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
    """Returns the shares of the data sheet that a step of ours has: of products that none computes
    twice, and of the bytes that its own passes move.
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


def repeated(extent: Extent) -> Row:
    """Trains twice in each precision."""
    edges = extent.graph(EVENT_1000)
    torch.use_deterministic_algorithms(True)
    rows = []
    for precision in ("fp32", "bf16"):
        one, other = (trained(precision, edges, extent) for _ in range(2))
        same = all(torch.equal(weight, again) for weight, again in zip(one, other, strict=True))
        rows.append({"precision": precision, "steps": STEPS, "same_bits": same})
    return {"origin": edges.origin, "rows": rows}


def trained(precision: str, edges: Edges, extent: Extent) -> list[Tensor]:
    """Returns the weights after some steps, on the CPU."""
    inputs = inputs_of(edges, extent)
    labels = (torch.arange(len(inputs[1]), device=extent.device) % 3 == 0).float()
    config = config_of(extent.widths[0], precision, extent)
    model = InteractionGNN(config, F, G).to(extent.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with extent.as_on_card():
        for _ in range(1 if extent.dry else STEPS):
            logits = model(*inputs, edges.n_nodes, no_exchange)
            binary_cross_entropy_with_logits(logits, labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.detach().cpu() for parameter in model.parameters()]
