"""An InteractionLayer whose edges are computed in chunks, forward and backward.

Between forward and backward it keeps the edges and nodes it read and the edges it made, which the
next layer reads. Its gradients are derived by hand: no pass over the edges is spent on keeping
what a chain of operations would.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, H = hidden.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bigtrk.models.aggregation import accumulable
from bigtrk.models.chunked_rows import chunks, same_autocast
from bigtrk.models.interaction_layer import InteractionLayer
from bigtrk.models.kernels import native, plain
from bigtrk.models.kernels.plain import Ends

Gradients = dict[str, Tensor]


@dataclass
class EncodedEdges:
    """The encoded edges [E, H] of one forward pass, which every layer reads.

    Each layer adds its part to `gradient` [E, H] (float32 at least). The first layer, which reads
    them as its state too, takes the sum: one such tensor, and not one per layer.
    """

    edges: Tensor
    gradient: Tensor | None = None
    unread: bool = True

    def first_read(self) -> bool:
        """Whether nobody has asked before: the first layer does.

        Not to be told from its input: engines that shard parameters wrap that in another tensor.
        """
        first, self.unread = self.unread, False
        return first

    def add(self, rows: slice, part: Tensor) -> None:
        if self.gradient is None:
            self.gradient = torch.zeros_like(accumulable(self.edges))
        self.gradient[rows] += part

    def take(self) -> Tensor | float:
        taken, self.gradient = self.gradient, None
        return 0.0 if taken is None else taken


class ChunkedLayer(torch.autograd.Function):
    """A whole InteractionLayer. Its parameters are inputs, for the engines' hooks."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        layer: InteractionLayer,
        encoded: EncodedEdges | None,
        edge_index: Tensor,
        n_owned: int,
        update_nodes: bool,
        e: Tensor,
        x: Tensor,
        x0: Tensor | None,
        *_: Tensor,
    ) -> tuple[Tensor | None, Tensor]:
        ctx.layer, ctx.encoded = layer, encoded
        ctx.is_first = encoded is not None and encoded.first_read()
        ctx.n_owned, ctx.update_nodes = n_owned, update_nodes
        ctx.autocast = same_autocast(e.device)
        if e.dtype == torch.bfloat16:
            x = x.to(e.dtype)  # what the products read of it, in half of the memory
        nodes = _nodes(x, x0)
        edges = _Edges(layer, encoded, edge_index, e, nodes)
        e_new, sums = edges.forward(update_nodes)
        owned = layer.update(sums, nodes, n_owned) if update_nodes else None
        ctx.save_for_backward(edge_index, e, x, x0, e_new)
        return owned, e_new

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[no-untyped-def]
        ctx, grad_owned: Tensor | None, grad_e: Tensor
    ) -> tuple[Tensor | None, ...]:
        edge_index, e, x, x0, e_new = ctx.saved_tensors
        layer: InteractionLayer = ctx.layer
        parameters = dict(layer.named_parameters())
        grads = {name: torch.zeros_like(value) for name, value in parameters.items()}
        with torch.enable_grad(), ctx.autocast:
            nodes = _nodes(x, x0).requires_grad_()
            edges = _Edges(layer, ctx.encoded, edge_index, e, nodes)
        of_nodes = torch.zeros_like(nodes)
        of_sums = None
        if ctx.update_nodes:
            sums = [sum_.requires_grad_() for sum_ in edges.sums(e_new)]
            with torch.enable_grad(), ctx.autocast:
                owned = layer.update(sums, nodes, ctx.n_owned)
            names = [name for name in parameters if name.startswith("node_mlp")]
            inputs = [*sums, nodes, *(parameters[name] for name in names)]
            incoming, outgoing, part, *found = torch.autograd.grad(owned, inputs, grad_owned)
            of_sums = incoming, outgoing
            of_nodes += part
            _add(grads, names, found)
        of_e, of_ends = edges.backward(grad_e, e_new, of_sums, grads)
        names = ["edge_mlp_0_weight", "edge_mlp_0_bias"]
        inputs = [nodes, *(parameters[name] for name in names)]
        part, *found = torch.autograd.grad(edges.of_nodes, inputs, of_ends)
        of_nodes += part
        _add(grads, names, found)
        if ctx.is_first:
            of_e += ctx.encoded.take()
        hidden = e.shape[1]
        of_x0 = None if x0 is None else of_nodes[:, hidden:]
        return *[None] * 5, of_e, of_nodes[:, :hidden], of_x0, *grads.values()


def _nodes(x: Tensor, x0: Tensor | None) -> Tensor:
    """All parts of the nodes: [N, P H], float32 at least, where gradients are summed."""
    return accumulable(x if x0 is None else torch.cat([x, x0.to(x.dtype)], dim=1)).detach()


def _add(grads: Gradients, names: list[str], found: list[Tensor]) -> None:
    for name, part in zip(names, found, strict=True):
        grads[name] += part


class _Edges:
    """The edges of a layer: what they read, and the layer's weights in their type."""

    def __init__(
        self,
        layer: InteractionLayer,
        encoded: EncodedEdges | None,
        edge_index: Tensor,
        e: Tensor,
        nodes: Tensor,
    ) -> None:
        self.of_nodes = layer.of_nodes(nodes)
        self._ends = [accumulable(values.detach()) for values in self.of_nodes]
        self._edge_index, self._encoded = edge_index, encoded
        self._parts = [e] if encoded is None else [e, encoded.edges]
        self._weights = [weight.detach().to(e.dtype) for weight in layer.of_edges()]
        self._rest = [
            (weight.detach().to(e.dtype), bias.detach().to(e.dtype))
            for weight, bias in layer.rest_of_edges()
        ]
        self._kernels: Any = native if native.usable(e.device, e.dtype) else plain

    def _chunks(self) -> Any:
        e = self._parts[0]
        for rows in chunks(e.shape[0], e.shape[1], e.device):
            source, destination = self._edge_index[:, rows]
            of_source, of_destination = self._ends
            yield rows, Ends(of_source, of_destination, source, destination)

    def _products(self, rows: slice) -> Tensor:
        """What the parts of the edges give in the first linear layer: [M, H]."""
        z = self._parts[0][rows] @ self._weights[0].t()
        for part, weight in zip(self._parts[1:], self._weights[1:], strict=True):
            z.addmm_(part[rows], weight.t())
        return z

    def forward(self, with_sums: bool) -> tuple[Tensor, list[Tensor]]:
        """New edges [E, H], and sums [N, H] of incoming and outgoing ones (where asked)."""
        e_new = torch.empty_like(self._parts[0])
        sums = [torch.zeros_like(values) for values in self._ends] if with_sums else []
        for rows, ends in self._chunks():
            values, _, _ = self._run(rows, ends)
            e_new[rows] = values.relu_()
            self._add_up(sums, e_new[rows], ends)
        return e_new, sums

    def sums(self, e_new: Tensor) -> list[Tensor]:
        """The sums of `forward` from the edges it made."""
        sums = [torch.zeros_like(values) for values in self._ends]
        for rows, ends in self._chunks():
            self._add_up(sums, e_new[rows], ends)
        return sums

    def _add_up(self, sums: list[Tensor], e_new: Tensor, ends: Ends) -> None:
        for total, index in zip(sums, (ends.destination, ends.source), strict=False):
            total.index_add_(0, index, accumulable(e_new))

    def _run(self, rows: slice, ends: Ends) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Edges before the last ReLU; what each later linear layer reads, and what that was made
        of: before LayerNorm, without the ends.
        """
        values, read, before = self._products(rows), [], []
        added: Ends | None = ends
        for weight, bias in self._rest:
            before.append(values)
            read.append(self._kernels.norm_relu(values, added))
            values = torch.addmm(bias, read[-1], weight.t())
            added = None
        return values if added is None else plain.total(values, added), read, before

    def backward(
        self, grad_e: Tensor, e_new: Tensor, of_sums: tuple[Tensor, Tensor] | None, grads: Gradients
    ) -> tuple[Tensor, list[Tensor]]:
        """Gradients of the edges read [E, H] and of `of_nodes`; those of the weights go to
        `grads`, those of the encoded edges to `encoded`.

        The result takes the place of `grad_e`, which nobody else reads.
        """
        e = self._parts[0]
        of_e = (
            grad_e
            if grad_e.is_contiguous() and grad_e.dtype == e.dtype
            else grad_e.to(e.dtype, copy=True, memory_format=torch.contiguous_format)
        )
        of_ends = [torch.zeros_like(values) for values in self._ends]
        for rows, ends in self._chunks():
            outer = None
            if of_sums is not None:
                incoming, outgoing = of_sums
                outer = Ends(outgoing, incoming, ends.source, ends.destination)
            grad = self._kernels.relu_backward(of_e[rows], e_new[rows], outer)
            grad = self._linears_backward(grad, rows, ends, grads)
            for total, index in zip(of_ends, (ends.source, ends.destination), strict=True):
                total.index_add_(0, index, accumulable(grad))
            self._parts_backward(grad, rows, of_e, grads)
        same_type = [t.to(o.dtype) for t, o in zip(of_ends, self.of_nodes, strict=True)]
        return of_e, same_type

    def _linears_backward(self, grad: Tensor, rows: slice, ends: Ends, grads: Gradients) -> Tensor:
        """From the gradient of the last linear layer's result to that of the first one's."""
        _, read, before = self._run(rows, ends)
        for k in reversed(range(len(self._rest))):
            weight, _ = self._rest[k]
            grads[f"edge_mlp_{k + 1}_weight"] += grad.t() @ read[k]
            grads[f"edge_mlp_{k + 1}_bias"] += accumulable(grad).sum(dim=0)
            grad = self._kernels.norm_relu_backward(grad @ weight, before[k], None if k else ends)
        return grad

    def _parts_backward(self, grad: Tensor, rows: slice, of_e: Tensor, grads: Gradients) -> None:
        of_weight, hidden = grads["edge_mlp_0_weight"], of_e.shape[1]
        for i, (part, weight) in enumerate(zip(self._parts, self._weights, strict=True)):
            of_weight[:, i * hidden : (i + 1) * hidden] += grad.t() @ part[rows]
            if i == 0:
                of_e[rows] = grad @ weight
            else:
                assert self._encoded is not None
                self._encoded.add(rows, grad @ weight)
