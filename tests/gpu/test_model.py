"""The Interaction GNN on a GPU against float64 on the CPU, alone and as DDP with an exchange."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import get_args

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel

from bigtrk.models.edges.states import Recompute
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.parallel.halo import HaloPlan, Piece
from bigtrk.parallel.process_group import close_process_group
from bigtrk.parallel.world import Stopwatch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]
# In float32 two chunks and a part of one; nodes that are sent, nodes of the halo.
N_EDGES, N_OWNED, N_HALO = 600_000, 20_000, 1_000
DEVICE = torch.device("cuda")
# Root mean square errors: of the logits over their spread, of a gradient over its norm.
TOLERANCE = {"fp32": (1e-5, 1e-3), "bf16": (0.1, 0.2)}
Result = tuple[Tensor, dict[str, Tensor]]
Exchange = Callable[[Tensor], Tensor]


def make_model(recompute: str = "chunk", precision: str = "fp32") -> InteractionGNN:
    torch.manual_seed(0)
    options = {"layers": 2, "recompute": recompute, "precision": precision}
    return InteractionGNN(InteractionGNNConfig.model_validate(options), 4, 6)


@cache
def graph() -> tuple[Tensor, Tensor, Tensor]:
    """A sector: nodes, edges, among them edges with the halo."""
    generator = torch.Generator().manual_seed(1)
    n_nodes = N_OWNED + N_HALO
    edge_index = torch.randint(n_nodes, (2, N_EDGES), generator=generator)
    x = torch.randn(n_nodes, 4, generator=generator)
    return x, torch.randn(N_EDGES, 6, generator=generator), edge_index


def step(
    model: torch.nn.Module, dtype: torch.dtype, device: torch.device, n_owned: int, call: Exchange
) -> Result:
    """Logits and gradients, on the CPU in float64."""
    x, edge_features, edge_index = graph()
    inputs = x.to(device, dtype), edge_features.to(device, dtype), edge_index.to(device)
    logits = model(*inputs, n_owned, call)
    label = (torch.arange(N_EDGES) % 3 == 0).to(device, logits.dtype)
    binary_cross_entropy_with_logits(logits, label).backward()
    named = ((name.removeprefix("module."), p.grad) for name, p in model.named_parameters())
    gradients = {name: grad.cpu().double() for name, grad in named if grad is not None}
    return logits.detach().cpu().double(), gradients


def own_rows_as_halo(owned: Tensor) -> Tensor:
    return torch.cat([owned, owned[:N_HALO]])


@pytest.fixture(scope="module")
def whole() -> Result:
    n_nodes = N_OWNED + N_HALO
    return step(make_model().double(), torch.float64, torch.device("cpu"), n_nodes, no_exchange)


@pytest.fixture
def nccl() -> Iterator[None]:
    store = dist.HashStore()  # type: ignore[attr-defined]  # exported, not in __all__
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    yield
    close_process_group()


def assert_near(found: Result, expected: Result, precision: str) -> None:
    of_logits, of_gradients = TOLERANCE[precision]
    assert float((found[0] - expected[0]).std() / expected[0].std()) < of_logits
    assert found[1].keys() == expected[1].keys()
    for name, gradient in found[1].items():
        off = (gradient - expected[1][name]).norm() / expected[1][name].norm()
        assert float(off) < of_gradients, name


@pytest.mark.parametrize("recompute", get_args(Recompute))
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_equals_float64_on_the_cpu(recompute: str, precision: str, whole: Result) -> None:
    model = make_model(recompute, precision).to(DEVICE)
    found = step(model, torch.float32, DEVICE, N_OWNED + N_HALO, no_exchange)
    assert_near(found, whole, precision)


@pytest.mark.usefixtures("nccl")
def test_ddp_with_an_exchange_over_nccl_equals_one_process_without() -> None:
    """The rank is its own neighbour: its halo are rows of its own."""
    cpu = torch.device("cpu")
    expected = step(make_model().double(), torch.float64, cpu, N_OWNED, own_rows_as_halo)
    packed, splits = torch.arange(N_HALO, device=DEVICE), (N_HALO,)
    assert dist.group.WORLD is not None
    halo = ((Piece(kept=False, start=0, length=N_HALO),),)
    plan = HaloPlan(packed, splits, splits, halo, dist.group.WORLD, Stopwatch(DEVICE))
    model = DistributedDataParallel(make_model().to(DEVICE))
    assert_near(
        step(model, torch.float32, DEVICE, N_OWNED, lambda rows: plan([rows])[0]), expected, "fp32"
    )
