"""The fused passes over nodes against autograd in float64: on a GPU, else in the interpreter."""

from math import fsum

import pytest
import torch

from bigtrk.cost.operations import Counter
from bigtrk.models.edges import schedule
from bigtrk.models.edges.fused_nodes import FusedNodePass
from bigtrk.models.edges.passes import EdgePass
from bigtrk.models.edges.work import counting
from bigtrk.models.protocol import no_exchange
from tests.models.fused import DEVICE
from tests.models.nodes import NodeCase, computed, exact
from tests.models.test_interaction_gnn import make_model

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("interpreted_bf16")]
CASES = [
    NodeCase(),
    NodeCase(layers=3, hidden=16, in_out=False),
    NodeCase(layers=1, encoded=False),
    NodeCase(hidden=33, n_nodes=17, n_owned=17),
    NodeCase(n_nodes=0, n_owned=0),
    NodeCase(n_nodes=5, n_owned=0),
]


@pytest.fixture(autouse=True)
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles in each part of a weight's gradient."""
    monkeypatch.setattr(schedule, "NODE_PARTS", 2)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_is_exact(case: NodeCase) -> None:
    found = computed(case, FusedNodePass, DEVICE)
    errors = found.errors(exact(case))
    assert max(errors.values()) < 1e-6, errors
    again = computed(case, FusedNodePass, DEVICE)
    assert all(torch.equal(values, again.found[name]) for name, values in found.found.items())


@pytest.mark.parametrize(
    "case",
    [
        NodeCase(hidden=16, n_nodes=150, n_owned=130, dtype=torch.bfloat16),
        pytest.param(NodeCase(layers=3, dtype=torch.bfloat16), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_bfloat16_is_at_most_twice_as_far_off_as_plain_passes(case: NodeCase) -> None:
    found, plain = (computed(case, one, DEVICE) for one in (FusedNodePass, EdgePass))
    wanted = exact(case)
    off, of_plain = (fsum(one.errors(wanted).values()) for one in (found, plain))
    assert 0 < off <= 2 * of_plain


def launches(layers: int, n_edges: int, n_nodes: int) -> int:
    """Counts the launches of a forward and backward pass of a model on a GPU."""
    model = make_model(layers=layers, hidden=64, precision="bf16").to("meta")
    edge_index = torch.zeros(2, n_edges, dtype=torch.int64, device="meta")
    x, edges = (torch.zeros(n, k, device="meta") for n, k in ((n_nodes, 3), (n_edges, 2)))
    counter = Counter([])
    with counter, counting(counter.launched):
        model(x, edges, edge_index, n_nodes, no_exchange).sum().backward()
    return counter.work.operations


@pytest.mark.parametrize(("n_edges", "n_nodes"), [(1_000, 50), (3_000_000, 150_000)])
def test_a_layer_is_a_few_launches_whatever_the_size(n_edges: int, n_nodes: int) -> None:
    """Five are over edges: a pass and its sums each way, and the sum of weights' gradients."""
    deep, less = (launches(layers, n_edges, n_nodes) for layers in (4, 3))
    assert deep - less <= 5 + 9
