"""Checks that every model passes: gradients, small sizes, types, bytes of a forward pass."""

import weakref
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from bigtrk.models.edges.states import Block, MemoryStore
from bigtrk.models.protocol import no_exchange
from tests.models.graphs import F, G, Recorder, gradients, halo_from, make_graph, sector_of


def same_gradients(model: nn.Module, found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Compares all parameters' gradients in float64, each on the scale of its largest entry."""
    assert found.keys() == wanted.keys() == {name for name, _ in model.named_parameters()}
    for name, gradient in wanted.items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-12 * scale, msg=name)


def a_sector_has_the_whole_graphs_logits(model: nn.Module) -> tuple[Tensor, Recorder]:
    """Returns the whole graph's logits and exchanges, too."""
    graph, whole = make_graph(), Recorder()
    expected = model(*graph, len(graph[0]), whole)
    sector = sector_of(graph)
    logits = model(*sector.inputs, len(sector.owned), halo_from(whole, sector))
    torch.testing.assert_close(logits, expected[sector.edges], rtol=1e-12, atol=1e-13)
    return expected, whole


def no_edges_give_gradients_of_zero(
    model: nn.Module, n_nodes: int = 5, shape: tuple[int, ...] = (0,)
) -> None:
    """Computes a graph without edges. shape: that of the logits."""
    device = next(model.parameters()).device
    no_edges = torch.zeros(2, 0, dtype=torch.int64, device=device)
    x, edge_features = torch.ones(n_nodes, F, device=device), torch.zeros(0, G, device=device)
    logits = model(x, edge_features, no_edges, n_nodes, no_exchange)
    assert logits.shape == shape
    found = gradients(model, logits)
    assert found.keys() == {name for name, _ in model.named_parameters()}
    assert all(gradient.abs().sum() == 0 for gradient in found.values())


def bf16_stays_near_float32(full: nn.Module, half: nn.Module) -> None:
    """Compares logits [E] or [E, 2], and gradients."""
    x, edge_features, edge_index = make_graph(30, 300)
    inputs = x.float(), edge_features.float(), edge_index, len(x), no_exchange
    expected, logits = full(*inputs), half(*inputs)
    assert logits.dtype == torch.float32
    assert logits.shape == expected.shape
    assert ((logits - expected).std(0) > 0).all()
    assert ((logits - expected).std(0) < 0.1 * expected.std(0)).all()
    wanted = gradients(full, expected)
    for name, gradient in gradients(half, logits).items():
        assert gradient.dtype == torch.float32
        assert float((gradient - wanted[name]).norm() / wanted[name].norm()) < 0.2, name


def kept_tensors(
    model: nn.Module, x: Tensor, edge_features: Tensor, edge_index: Tensor
) -> Sequence[Tensor]:
    """Lists tensors of distinct storage that a forward pass keeps for the backward pass."""
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(x.float(), edge_features.float(), edge_index, len(x), no_exchange)
    assert logits.requires_grad
    return list(kept.values())


def n_bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


class Recording(MemoryStore):
    """Notes the rows of edges that it makes, those alive, and the bytes that pass through it."""

    def __init__(self) -> None:
        self.rows: list[weakref.ref[Tensor]] = []
        self.passed = 0

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        made = super().new(n_rows, width, dtype, device)
        self.rows.append(weakref.ref(made))
        return made

    def blocks(
        self, n_rows: int, read: Sequence[Tensor], made: Sequence[Tensor]
    ) -> Iterator[Block]:
        self.passed += n_bytes([*read, *made])
        return super().blocks(n_rows, read, made)

    @property
    def alive(self) -> list[Tensor]:
        return [rows for ref in self.rows if (rows := ref()) is not None]
