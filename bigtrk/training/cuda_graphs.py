"""Small passes of the Interaction GNN by CUDA graphs, since starting their operations one by one
takes longer than computing them: recorded once for each bucket of sizes, and then replayed.

A bucket pads a sector by edges that join nodes of the padding to themselves. Their logits are cut
off, so their gradients are exactly zero, and zeros after the other terms change no bit of a sum.
Loss, reduction over ranks and optimizer stay outside. Shapes: N nodes, E edges.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bigtrk.console import warn_once
from bigtrk.models.edges import fused, schedule
from bigtrk.models.edges.fused_pass import tile_of
from bigtrk.models.edges.states import Workspace
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import CHECKED, check_edges, no_exchange
from bigtrk.training.settings import Configuration

MOST_EDGES, MOST_BUCKETS = 200_000, 16
_ROWS = 16  # of the smallest tile; the least step of sizes; the edges of a node of the padding
_HEADS = "decoder.output_bias", "decoder.pt_bias"
_SOME = f"over {MOST_EDGES:,} edges, halo exchanges, and sizes other than the first {MOST_BUCKETS}"
_NEEDS = (
    "an NVIDIA GPU, torch 2.13, engine.name=ddp, and the Interaction GNN with fused passes in bf16 "
    "(docs/gpu.md), without model.recompute=offload and training.spill"
)
Sizes = tuple[int, int]  # numbers of nodes and edges


def bucket(n: int, spare: int, step: int) -> int:
    """Rounds n + `spare` up to an eighth of an octave, but n to a multiple of `step` at most."""
    eighth = max(_ROWS, 1 << max(0, (n + spare - 1).bit_length() - 4))
    return min(-(-(n + spare) // eighth) * eighth, -(-n // step) * step)


class Recorder:
    """Records calls on a GPU as CUDA graphs, in one memory: replay them in the order of calls."""

    def __init__(self, device: torch.device) -> None:
        # One stream for all: autograd lets a stream wait for the one that first used a parameter.
        self._stream, self._pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    def record(self, *calls: Callable[[], list[Tensor]]) -> list[tuple[Any, list[Tensor]]]:
        """Runs the calls, which compiles, then records each: its replay, and what that fills."""
        torch.cuda.synchronize()
        made = []
        with torch.cuda.stream(self._stream):  # a recording that fails would not leave its stream
            for call in calls:
                call()
            for call in calls:
                graph, mode = torch.cuda.CUDAGraph(), "thread_local"  # other threads go on
                with torch.cuda.graph(graph, self._pool, self._stream, mode):
                    filled = call()
                made.append((graph.replay, filled))
        return made


class Recorded:
    """A forward and a backward pass of a bucket's sizes. inputs: x, edge_features, edge_index."""

    def __init__(self, model: nn.Module, recorder: Recorder, sizes: Sizes, *inputs: Tensor) -> None:
        (x, edge_features, edge_index), (n_nodes, n_edges) = inputs, sizes
        self._x = x.new_zeros(n_nodes, x.shape[1])
        self._edge_features = edge_features.new_zeros(n_edges, edge_features.shape[1])
        self._edge_index = edge_index.new_zeros(2, n_edges)
        self._padding = n_nodes - 1 - torch.arange(n_edges, device=x.device).flip(0) // _ROWS
        self._model, self._weights = model, [*model.parameters()]
        names = [name for name, _ in model.named_parameters()]
        self.heads = [names.index(name) for name in _HEADS if name in names]
        self.given = x.new_zeros((n_edges, 2)[: len(self.heads)])
        self.put(*inputs)
        forward, backward = recorder.record(self._forward, self._backward)
        (self.forward, [self.logits]), (self.backward, self.gradients) = forward, backward

    def put(self, x: Tensor, edge_features: Tensor, edge_index: Tensor) -> None:
        """Copies the inputs of the next pass, and pads them."""
        check_edges(edge_index, len(x))
        n_edges = edge_index.shape[1]
        for held, given in ((self._x, x), (self._edge_features, edge_features)):
            held[: len(given)] = given
            held[len(given) :] = 0
        self._edge_index[:, :n_edges] = edge_index
        self._edge_index[:, n_edges:] = self._padding[n_edges:]

    def _forward(self) -> list[Tensor]:
        # A new tensor: what is kept by tensor, such as the edges of each node, would be a constant.
        edge_index, n_nodes = self._edge_index.view_as(self._edge_index), len(self._x)
        CHECKED[edge_index] = n_nodes
        self._made = self._model(self._x, self._edge_features, edge_index, n_nodes, no_exchange)
        return [self._made.detach()]

    def _backward(self) -> list[Tensor]:
        gradients = torch.autograd.grad(self._made, self._weights, self.given)
        del self._made
        return [*gradients]


class _Replay(torch.autograd.Function):
    """Replays a pass: logits [E], or with log pT [E, 2]. The weights, as inputs, get gradients."""

    @staticmethod
    def forward(ctx, passes, recorded, n_edges, *weights):  # type: ignore[no-untyped-def]  # noqa: ARG004
        passes.turn += 1
        ctx.passes, ctx.recorded, ctx.turn = passes, recorded, passes.turn
        recorded.forward()
        return recorded.logits[:n_edges].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        recorded, n_edges = ctx.recorded, len(grad)
        if ctx.turn != ctx.passes.turn:
            raise RuntimeError("another pass has overwritten what this backward pass reads")
        ctx.passes.turn += 1
        recorded.given[:n_edges], recorded.given[n_edges:] = grad, 0
        recorded.backward()
        # Copied: they become `parameter.grad`, and the next replay overwrites the graph's memory.
        gradients = [*torch._foreach_mul(recorded.gradients, 1.0)]
        # torch sums these biases over edges, in an order that depends on the number of edges.
        totals = grad.reshape(n_edges, -1).sum(0).split(1)
        for head, total in zip(recorded.heads, totals, strict=True):
            gradients[head] = total
        return None, None, None, *gradients


class SmallPasses:
    """Stands for a model's `forward`: replays small passes of one sector that get gradients.
    Computes the others, and all after a recording that fails, as without it. steps: `steps_of`.
    """

    def __init__(self, model: nn.Module, recorder: Recorder, steps: Sizes) -> None:
        self._model, self._recorder, self._steps = model, recorder, steps
        self._known: dict[Sizes, Recorded] = {}
        self._fails, self.turn = False, 0
        # Engines put hooks on the parameters: a twin has the same memory without these.
        self._twin = deepcopy(model)
        for own, shared in zip(self._twin.parameters(), model.parameters(), strict=True):
            own.data = shared.data

    def __call__(self, *arguments: Any) -> Any:
        trains = torch.is_grad_enabled() and not self._fails
        recorded = self._recorded(*arguments) if trains else None
        if recorded is None:
            return type(self._model).forward(self._model, *arguments)
        recorded.put(*arguments[:3])
        return _Replay.apply(self, recorded, len(arguments[1]), *self._model.parameters())

    def _recorded(self, *arguments: Any) -> Recorded | None:
        """Returns the passes of the arguments' bucket, recorded if need be; None without one."""
        *inputs, exchange = arguments
        n_nodes, n_edges = (len(inputs[0]), len(inputs[1])) if len(inputs) == 4 else (0, 0)
        padded = bucket(n_edges, 0, self._steps[1])
        sizes = bucket(n_nodes, -(-(padded - n_edges) // _ROWS), self._steps[0]), padded
        is_full = sizes not in self._known and len(self._known) == MOST_BUCKETS
        if exchange is not no_exchange or inputs[3] != n_nodes or n_edges > MOST_EDGES or is_full:
            warn_once("large passes", f"passes with {_SOME} run without CUDA graphs")
        elif n_edges and padded - n_edges <= _ROWS * (sizes[0] - n_nodes):  # else one sums too many
            try:
                if sizes not in self._known:
                    self._known[sizes] = Recorded(self._twin, self._recorder, sizes, *inputs[:3])
                return self._known[sizes]
            except Exception as error:  # of torch or Triton: the ordinary pass may go well
                self._fails, reason = True, str(error).split("\n", 1)[0]
                warn_once(
                    "CUDA graphs", f"training without CUDA graphs; recording failed: {reason}"
                )
        return None


def steps_of(model: nn.Module) -> Sizes | None:
    """Returns the numbers of nodes and of edges at whose multiples sums of gradients may change
    their order; None unless all passes are fused: torch's own may round by the number of rows.
    """
    if not isinstance(model, InteractionGNN) or model.config.precision != "bf16":
        return None
    hidden, device = model.config.hidden, next(model.parameters()).device
    work = Workspace(hidden, model.config.recompute, torch.bfloat16, device)
    mlps = model.node_encoder, model.edge_encoder, model.decoder
    are_fused = [tile_of(mlp.weights(), mlp.activations, work) is not None for mlp in mlps]
    are_fused.append(fused.usable(device, work.dtype, hidden, model.config.mlp_layers))
    of_nodes = schedule.node_tile(hidden, work.dtype).height * schedule.NODE_PARTS
    return (of_nodes, _ROWS * schedule.most_programs(hidden)) if all(are_fused) else None


def use_graphs(configuration: Configuration, model: nn.Module, device: torch.device) -> None:
    """Makes a training replay small passes of its model, or says what that needs."""
    is_kept = not (configuration.training.spill or configuration.model.offloads)
    # Before 2.13, a recording that fails leaves torch unable to free memory.
    fits = device.type == "cuda" and torch.__version__ >= "2.13" and is_kept
    if fits and configuration.engine.name == "ddp" and (steps := steps_of(model)):
        model.forward = SmallPasses(model, Recorder(device), steps)
    else:
        warn_once("no CUDA graphs", f"training without CUDA graphs: they need {_NEEDS}")
