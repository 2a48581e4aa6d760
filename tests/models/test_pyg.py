"""Networks of PyG's layers in sectors of one process, against the plain network on the whole graph
in float64: logits and every gradient.
"""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SuperGATConv

from bigtrk.models.pyg_model import PyGModel
from bigtrk.models.settings import AttentionGNNConfig
from bigtrk.proof.prove import check_model, prove
from tests.models.graphs import Cut, F, G, Graph, make_graph
from tests.models.pyg_nets import LAYERS, WIDTH, Net, Plain
from tests.models.sectors_at_once import run_at_once
from tests.oracle.pyg import PlainModel

each_flow = pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
DECODER = AttentionGNNConfig(hidden=5)
STACK = ["GATv2Conv", "GCNConv", "SAGEConv"]


def make(net: nn.Module) -> tuple[PyGModel, PlainModel]:
    """Makes the model of a network, and the network by itself with the same weights."""
    stock = deepcopy(net)
    return with_weights_of(PyGModel(net, DECODER, F, G), stock)


def with_weights_of(model: PyGModel, stock: nn.Module) -> tuple[PyGModel, PlainModel]:
    oracle = PlainModel(stock, model.decoder.state_dict())
    oracle.load_state_dict(model.state_dict())
    return model.double(), oracle.double()


def gradients(models: list[nn.Module], logits: Tensor) -> dict[str, Tensor]:
    """The sums over models of the gradients of a loss in which every edge counts differently."""
    (logits * torch.arange(1, len(logits) + 1)).square().sum().backward()
    found: dict[str, Tensor] = {}
    for model in models:
        for name, weight in model.named_parameters():
            assert weight.grad is not None, name
            found[name] = found.get(name, 0) + weight.grad
    return found


def compare(model: PyGModel, oracle: PlainModel, graph: Graph, parts: int) -> None:
    expected = oracle(*graph)
    wanted = gradients([oracle], expected)
    cut = Cut(graph, parts)
    copies = [deepcopy(model) for _ in cut.sectors]
    made = cut.merged(run_at_once(copies, cut))
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
    found = gradients(list(copies), made)
    assert found.keys() == wanted.keys()
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    for name, gradient in wanted.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=0, atol=1e-12 * largest, msg=f"{name}: {gradient}"
        )


@each_flow
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("kinds", [*([kind, kind] for kind in LAYERS), STACK], ids=str)
def test_sectors_give_what_the_plain_network_gives_of_the_whole_graph(
    kinds: list[str], parts: int, flow: str
) -> None:
    torch.manual_seed(0)
    compare(*make(Net(F, G, kinds, flow)), make_graph(), parts)


# Each takes some 5 s; all but two are left to `make check`.
CONTRACTS = [
    STACK,
    ["GCNConv", "GCNConv"],
    *(pytest.param([kind, kind], marks=pytest.mark.slow) for kind in LAYERS if kind != "GCNConv"),
]


@pytest.mark.usefixtures("in_three")
@pytest.mark.parametrize("kinds", CONTRACTS, ids=str)
def test_the_contract_is_kept(kinds: list[str]) -> None:
    """An empty sector keeps it, too: zero gradients, as many exchanges."""
    torch.manual_seed(0)
    model = PyGModel(Net(F, G, kinds), DECODER, F, G)
    # GCNConv exchanges degrees, too.
    widths = [n for kind in kinds for n in ([1, WIDTH] if "GCNConv" in kind else [WIDTH])]
    assert check_model(model, F, G) == widths
    proof = prove(model, F, G)
    assert proof.first_difference is None
    assert proof.worst is not None
    assert proof.worst < 1e-12


def test_sizes_may_be_left_to_the_first_run_and_edge_features_unread() -> None:
    torch.manual_seed(0)
    net = Plain(F, G)
    model = PyGModel(net, DECODER, F, G)
    assert check_model(model, F, G) == [5, 10]
    stock = Plain(F, G)
    stock(torch.ones(2, F), torch.zeros(2, 1, dtype=torch.int64))
    compare(*with_weights_of(model, stock), make_graph(), 2)


class Weighted(nn.Module):
    """GCNConv with weights of edges that are learned, and each end weighted anew."""

    def __init__(self, improved: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(G, 1)
        self.conv1 = GCNConv(F, WIDTH, improved=improved)
        self.conv2 = GCNConv(WIDTH, WIDTH, improved=improved, flow="target_to_source")

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        weight = self.gate(edge_attr).sigmoid()[:, 0]
        x = self.conv1(x, edge_index, edge_weight=weight).tanh()
        made: Tensor = self.conv2(x, edge_index=edge_index, edge_weight=weight)
        return made


@pytest.mark.parametrize("improved", [False, True])
def test_degrees_of_learned_weights_have_gradients(improved: bool) -> None:
    torch.manual_seed(0)
    net = Weighted(improved)
    compare(*make(deepcopy(net)), make_graph(), 3)
    assert check_model(PyGModel(net, DECODER, F, G), F, G) == [1, WIDTH, 1, WIDTH]


class Attention(nn.Module):
    """SuperGATConv keeps its attention, with gradients, on itself."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.conv1 = SuperGATConv(F, 3, heads=2, attention_type=kind)
        self.conv2 = SuperGATConv(6, 3, heads=2, attention_type=kind)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv2(self.conv1(x, edge_index).tanh(), edge_index)


@pytest.mark.usefixtures("in_three")
@pytest.mark.parametrize("kind", ["MX", "SD"])
def test_a_layer_that_keeps_its_attention_is_exact(kind: str) -> None:
    torch.manual_seed(0)
    net = Attention(kind)
    for parts in (1, 3):
        compare(*make(deepcopy(net)), make_graph(), parts)
    model = PyGModel(net, DECODER, F, G)
    assert check_model(model, F, G) == [6, 6]
    assert prove(model, F, G).exact
