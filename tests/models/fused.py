"""A layer's pass over its edges by autograd in float64, and the fused one on the same numbers."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from bigtrk.models.edges import fused, schedule
from bigtrk.models.edges.triton_passes import sum_at_ends
from bigtrk.models.protocol import Ends

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def usable_everywhere(
    device: torch.device,  # noqa: ARG001
    dtype: torch.dtype,
    hidden: int,
    layers: int,
) -> bool:
    """Stands for fused.usable: any device has the fused passes."""
    return schedule.layer_tile(hidden, layers, dtype, 9) is not None


class Repeater:
    """Stands for cuda_graphs.Recorder without a GPU: a replay runs the call again."""

    def record(self, *calls: Any) -> Any:
        again = torch.enable_grad()(lambda made, call: torch._foreach_copy_(made, call()))
        return [(partial(again, made := call(), call), made) for call in calls]


@dataclass(frozen=True)
class Case:
    """A layer of random edges between random nodes. encoded: it reads the encoded edges too."""

    hidden: int = 16
    layers: int = 2
    encoded: bool = True
    n_edges: int = 75
    n_nodes: int = 9
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Inputs:
    """inputs, after [E, H]; shares, outer [N, H] of sources and destinations; weights in turn
    weight and bias, of which the first weight [H, ...] has more columns; of_state [H, H], a part of
    a weight.
    """

    inputs: list[Tensor]
    shares: tuple[Tensor, Tensor]
    outer: tuple[Tensor, Tensor]
    after: Tensor
    weights: list[Tensor]
    of_state: Tensor
    edge_index: Tensor


@dataclass(frozen=True)
class Results:
    """All that a pass forward and backward makes: by name, on the CPU."""

    found: dict[str, Tensor]

    def errors(self, exact: "Results") -> dict[str, float]:
        """The largest difference of each tensor over its largest entry."""
        assert self.found.keys() == exact.found.keys()
        return {
            name: _error(self.found[name].double(), wanted) for name, wanted in exact.found.items()
        }


def _error(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    assert found.isfinite().all()  # the largest of errors may overlook one that is no number
    off = (found - wanted).abs().max() if wanted.numel() else torch.zeros(())
    scale = wanted.abs().max() if wanted.numel() else torch.ones(())
    return float(off / scale) if off > 0 else float(off)


def make(case: Case) -> Inputs:
    """Draws inputs, rounded to the case's type where the pass reads that type."""
    generator = torch.Generator().manual_seed(5)
    hidden, rows = case.hidden, (case.n_edges, case.hidden)

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(shape, generator=generator)

    n_inputs = 2 if case.encoded else 1
    weights = [draw(hidden, (n_inputs + 4) * hidden, scale=hidden**-0.5), draw(hidden)]
    for _ in range(case.layers - 1):
        weights += [draw(hidden, hidden, scale=hidden**-0.5), draw(hidden)]
    of_nodes = [draw(case.n_nodes, hidden).to(case.dtype) for _ in range(4)]
    edge_index = torch.randint(case.n_nodes, (2, case.n_edges), generator=generator)
    return Inputs(
        inputs=[draw(*rows).to(case.dtype) for _ in range(n_inputs)],
        shares=(of_nodes[0], of_nodes[1]),
        outer=(of_nodes[2], of_nodes[3]),
        after=draw(*rows).to(case.dtype),
        weights=weights,
        of_state=draw(hidden, 2 * hidden, scale=hidden**-0.5).to(case.dtype)[:, :hidden],
        edge_index=edge_index,
    )


def exact(inputs: Inputs, dtype: torch.dtype = torch.float64) -> Results:
    """The pass by torch's own operations and autograd."""
    wide = [values.to(dtype) for values in inputs.inputs]
    weights = [weight.to(dtype).requires_grad_() for weight in inputs.weights]
    source, destination = inputs.edge_index
    hidden = wide[0].shape[1]
    columns = weights[0][:, : len(wide) * hidden]
    first = torch.cat(wide, dim=1) @ columns.T
    first = first + inputs.shares[0].to(dtype)[source] + inputs.shares[1].to(dtype)[destination]
    first.retain_grad()
    made = first
    for weight, bias in zip(weights[2::2], weights[3::2], strict=True):
        made = layer_norm(made, made.shape[-1:]).relu() @ weight.T + bias
    made = made.relu()
    grad = inputs.after.to(dtype) @ inputs.of_state.to(dtype)
    grad = grad + inputs.outer[0].to(dtype)[source] + inputs.outer[1].to(dtype)[destination]
    made.backward(grad)
    found = {"made": made.detach(), "gradient": grad_of(first)}
    for name, values in (("sums", found["made"]), ("of shares", found["gradient"])):
        for side, end in (("source", source), ("destination", destination)):
            zeros = torch.zeros(len(inputs.shares[0]), hidden, dtype=dtype)
            found[f"{name}, {side}"] = zeros.index_add(0, end, values)
    found["weight 0"] = grad_of(weights[0])[:, : len(wide) * hidden]
    found |= {f"weight {i}": grad_of(weight) for i, weight in enumerate(weights) if i > 1}
    return Results(found)


def grad_of(values: Tensor) -> Tensor:
    assert values.grad is not None
    return values.grad


def computed(inputs: Inputs, blocks: int = 1) -> Results:
    """The same by the fused passes, in `blocks` of edges."""
    inputs = _on_device(inputs)
    n_edges, hidden = inputs.after.shape
    n_nodes = len(inputs.shares[0])
    step = -(-n_edges // blocks) or 1
    slices = [slice(i, min(i + step, n_edges)) for i in range(0, max(n_edges, 1), step)]
    made, gradient = torch.empty_like(inputs.after), torch.empty_like(inputs.after)
    sums, of_shares = (_sums(n_nodes, hidden, inputs.edge_index) for _ in range(2))
    shares = Ends.between(*inputs.shares, inputs.edge_index)
    outer = Ends.between(*inputs.outer, inputs.edge_index)
    grads = [torch.full_like(weight, 7.0) for weight in inputs.weights]
    weights = inputs.weights
    for rows in slices:
        read = [values[rows] for values in inputs.inputs]
        fused.forward(read, shares.of(rows), weights, made[rows])
        sum_at_ends(made[rows], sums.of(rows), adds=rows.start > 0)
    found = {"made": made.clone()}
    for rows in slices:
        read, adds = [values[rows] for values in inputs.inputs], rows.start > 0
        given = fused.NextLayer(inputs.after[rows], inputs.of_state, outer.of(rows))
        fused.backward(
            read, shares.of(rows), weights, made[rows], given, gradient[rows], grads, adds
        )
        sum_at_ends(gradient[rows], of_shares.of(rows), adds)
    found["gradient"] = gradient
    for name, ends in (("sums", sums), ("of shares", of_shares)):
        found[f"{name}, source"], found[f"{name}, destination"] = ends[:2]
    width = len(inputs.inputs) * hidden
    assert (grads[0][:, width:] == 7).all(), "the columns of nodes are not the pass's"
    assert (grads[1] == 7).all()
    found["weight 0"] = grads[0][:, :width]
    found |= {f"weight {i}": grad for i, grad in enumerate(grads) if i > 1}
    return Results({name: values.cpu() for name, values in found.items()})


def _sums(n_nodes: int, hidden: int, edge_index: Tensor) -> Ends:
    """Makes sums of what must not stay in them."""
    outgoing, incoming = torch.full((2, n_nodes, hidden), 7.0, device=DEVICE)
    return Ends.between(outgoing, incoming, edge_index)


def _on_device(inputs: Inputs) -> Inputs:
    columns = inputs.of_state.shape[1]
    wider = torch.cat([inputs.of_state, inputs.of_state], dim=1).to(DEVICE)
    return Inputs(
        inputs=[values.to(DEVICE) for values in inputs.inputs],
        shares=(inputs.shares[0].to(DEVICE), inputs.shares[1].to(DEVICE)),
        outer=(inputs.outer[0].to(DEVICE), inputs.outer[1].to(DEVICE)),
        after=inputs.after.to(DEVICE),
        weights=[weight.to(DEVICE) for weight in inputs.weights],
        of_state=wider[:, :columns],  # with a stride, as a part of a weight
        edge_index=inputs.edge_index.to(DEVICE),
    )
