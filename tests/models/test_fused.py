"""The fused passes over edges against autograd in float64: on a GPU, else in the interpreter."""

from dataclasses import replace

import pytest
import torch

from bigtrk.models.edges import fused, schedule, triton_passes
from bigtrk.models.edges.triton_passes import sum_at_ends
from bigtrk.models.protocol import Ends
from tests.models.fused import DEVICE, Case, computed, exact, make

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("interpreted_bf16")]
DTYPES = [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)]
CASES = [
    *(
        Case(layers=layers, encoded=encoded)
        for layers, encoded in ((1, True), (1, False), (2, False), (3, False))
    ),
    *(Case(hidden=hidden) for hidden in (16, 32)),
    Case(hidden=48, layers=3, n_edges=40),
    *(Case(n_edges=n_edges, layers=3) for n_edges in (0, 1, 16, 17)),
    Case(n_edges=0, layers=1),
]


@pytest.fixture
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several programs in the backward pass, of two tiles each but the last."""
    monkeypatch.setattr(schedule, "PROGRAMS", 3 * 32)
    monkeypatch.setattr(schedule, "FORWARD_PROGRAMS", 3)


@pytest.mark.usefixtures("small_programs")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_is_exact(case: Case) -> None:
    inputs = make(case)
    errors = computed(inputs).errors(exact(inputs))
    assert max(errors.values()) < 1e-6, errors


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_sums_of_a_hub_of_many_edges(dtype: torch.dtype) -> None:
    n_edges, hidden = 10_000, 5
    generator = torch.Generator().manual_seed(6)
    values = (torch.randn(n_edges, hidden, generator=generator) + 0.5).to(dtype)
    edge_index = torch.randint(7, (2, n_edges), generator=generator)
    edge_index[1, 1000:] = 3
    outgoing, incoming = torch.zeros(2, 7, hidden, device=DEVICE)
    sums = Ends.between(outgoing, incoming, edge_index.to(DEVICE))
    sum_at_ends(values.to(DEVICE), sums, adds=False)
    for found, end in zip(sums[:2], edge_index, strict=True):
        wanted = torch.zeros(7, hidden, dtype=torch.float64).index_add(0, end, values.double())
        assert float((found.cpu() - wanted).abs().max() / wanted.abs().max()) < 1e-6


# Slow: so much is interpreted.
@pytest.mark.parametrize(
    ("n_edges", "n_nodes"), [(800, 3), pytest.param(10_000, 1, marks=pytest.mark.slow)]
)
def test_many_edges_between_few_nodes(n_edges: int, n_nodes: int) -> None:
    inputs = make(Case(hidden=16, n_edges=n_edges, n_nodes=n_nodes))
    errors = computed(inputs).errors(exact(inputs))
    assert max(errors.values()) < 1e-5, errors


@pytest.fixture
def generation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiles of a generation of cards; a card has its own."""
    if torch.cuda.is_available() and request.param != fused.capability(DEVICE):
        pytest.skip("the tiles of another card")
    monkeypatch.setattr(fused, "capability", lambda _: request.param)


CARDS = [
    *(
        Case(hidden, n_edges=400, layers=layers, encoded=encoded)
        for hidden, layers, encoded in ((16, 2, True), (32, 1, False), (48, 3, True))
    ),
    *(
        Case(hidden, n_edges=400, layers=layers, encoded=encoded, dtype=torch.bfloat16)
        for hidden, layers, encoded in (
            (32, 1, True),
            (32, 2, True),
            (32, 3, False),
            (48, 2, False),
            (64, 1, True),
            (64, 3, True),
            (80, 1, True),
        )
    ),
    Case(16, n_edges=800, n_nodes=3, dtype=torch.bfloat16),
]
SLOW_CARDS = [  # so much is interpreted
    *(Case(64, n_edges=200, layers=layers) for layers in (1, 2, 3)),
    *(Case(wide, n_edges=200, dtype=torch.bfloat16) for wide in (64, 128)),
    Case(80, n_edges=400, layers=3, dtype=torch.bfloat16),
]


def of_generations(case: Case) -> list[tuple[int, Case]]:
    """Gives a case to the cards before Hopper, and to Hopper where it has tiles of its own, or is
    the card of these tests.
    """
    before, hopper = (
        schedule.layer_tile(case.hidden, case.layers, case.dtype, one) for one in (8, 9)
    )
    both = before != hopper or torch.cuda.is_available()
    return [*([(8, case)] if before else []), *([(9, case)] if both else [])]


@pytest.mark.usefixtures("small_programs", "generation")
@pytest.mark.parametrize(
    ("generation", "case"),
    [
        *(one for case in CARDS for one in of_generations(case)),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for case in SLOW_CARDS
            for one in of_generations(case)
        ),
    ],
    indirect=["generation"],
    ids=str,
)
def test_errors_are_at_most_a_few_times_those_of_torch(case: Case) -> None:
    """float32 is multiplied as three products of tf32, which the interpreter does as cards do."""
    inputs, most = make(case), 2 if case.dtype == torch.bfloat16 else 3
    wanted = exact(inputs)
    plain = exact(inputs, case.dtype).errors(wanted)
    found = computed(inputs).errors(wanted)
    assert all(error <= most * plain[name] for name, error in found.items()), (found, plain)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_blocks_of_a_store_are_added_up(dtype: torch.dtype) -> None:
    inputs = make(Case(n_edges=100, dtype=dtype))
    whole, in_blocks = computed(inputs), computed(inputs, blocks=3)
    exactly = replace(whole, found={name: v.double() for name, v in whole.found.items()})
    errors = in_blocks.errors(exactly)
    assert max(errors.values()) < (1e-6 if dtype == torch.float32 else 1e-2), errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_same_bits_twice(dtype: torch.dtype) -> None:
    inputs = make(Case(n_edges=100, dtype=dtype))
    one, other = computed(inputs), computed(inputs)
    assert all(torch.equal(values, other.found[name]) for name, values in one.found.items())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_program_that_sums_a_node_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Tiles and numbers of programs and warps do fix an order, and so are constants."""
    case, turned = Case(n_edges=120, dtype=dtype), triton_passes._turns
    one = computed(make(case)).found
    monkeypatch.setattr(triton_passes, "_turns", lambda *ends: turned(*ends).flip(0))
    other = computed(make(case)).found
    assert all(torch.equal(values, other[name]) for name, values in one.items())


def test_what_is_not_finite_stays_visible() -> None:
    inputs = make(Case(n_edges=40, n_nodes=40))
    inputs.inputs[0][3, 4] = float("nan")
    found = computed(inputs).found
    assert found["made"][3].isnan().any()
    assert found["made"][4:].isfinite().all()
    assert found["gradient"][3].isnan().any()
    assert found["weight 0"].isnan().any()
