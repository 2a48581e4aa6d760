"""Rates: seconds are sums of amounts, corrections lie between the widths that were measured."""

import math

import pytest

from bigtrk.cost.event_size import SectorSize
from bigtrk.cost.footprint import footprint
from bigtrk.cost.machine_constants import A100, CPU, MachineConstants
from bigtrk.cost.model import CostModel
from bigtrk.cost.rates import Correction, EngineAmounts, Rates
from bigtrk.cost.sharding import Sharding
from bigtrk.models.edges import native
from bigtrk.models.edges.workspace import CPU_BYTES
from bigtrk.models.settings import (
    AttentionGNNConfig,
    EdgeMLPConfig,
    InteractionGNNConfig,
    ModelConfig,
    make_model,
)
from bigtrk.parallel.host import LARGE

ONE = Rates(seconds={"fp32": 2.0, "steps": 5.0})


def corrected(*found: tuple[int, float, float], seconds: float = 1.0) -> Rates:
    """Makes rates with corrections: width, edges per node, factor."""
    named = {"model": "mlp", "recompute": "none", "precision": "bf16"}
    return Rates(
        seconds={},
        corrections=[
            Correction.model_validate(
                {**named, "hidden": h, "degree": degree, "seconds": seconds, "factor": factor}
            )
            for h, degree, factor in found
        ],
    )


def on(model: ModelConfig, machine: MachineConstants = CPU, world: int = 1) -> CostModel:
    return CostModel(model, 4, 6, Sharding("DDP", "none", world), world, world, machine)


def test_seconds_are_the_sum_of_amounts() -> None:
    assert ONE.of({"fp32": 3.0, "steps": 1.0, "traffic": 1e9}) == 11.0


def test_corrections_lie_between_the_widths_measured() -> None:
    rates = corrected((16, 10, 2.0), (64, 10, 0.5))
    asked = ("mlp", "none", "bf16")
    assert rates.factor(*asked, 16, 10, 1) == pytest.approx(2.0)
    assert rates.factor(*asked, 32, 10, 1) == pytest.approx(1.0)  # half way, on logarithmic scales
    assert rates.factor(*asked, 8, 10, 1) == pytest.approx(2.0)
    assert rates.factor(*asked, 1000, 3, 1) == pytest.approx(0.5)
    assert rates.factor("mlp", "none", "fp32", 16, 10, 1) == 1.0
    assert rates.factor("mine:Model", "none", "bf16", 16, 10, 1) == 1.0


def test_corrections_lie_between_the_degrees_measured_at_a_width() -> None:
    rates = corrected((16, 1, 4.0), (16, 16, 1.0), (64, 10, 1.0))
    asked = ("mlp", "none", "bf16")
    assert rates.factor(*asked, 16, 1, 1) == pytest.approx(4.0)
    assert rates.factor(*asked, 16, 4, 1) == pytest.approx(2.0)
    assert rates.factor(*asked, 16, 0.3, 1) == pytest.approx(4.0)
    assert rates.factor(*asked, 32, 1, 1) == pytest.approx(2.0)
    assert rates.factor(*asked, 64, 1, 1) == pytest.approx(1.0)


def test_corrections_lie_between_the_lengths_measured_at_a_degree() -> None:
    short, long = corrected((16, 10, 1.0), seconds=0.1), corrected((16, 10, 4.0), seconds=10.0)
    rates = Rates(seconds={}, corrections=[*short.corrections, *long.corrections])
    asked = ("mlp", "none", "bf16", 16, 10)
    found = [rates.factor(*asked, seconds) for seconds in (0.01, 0.1, 1.0, 10.0, 100.0)]
    assert found == pytest.approx([1.0, 1.0, 2.0, 4.0, 4.0])


def test_the_sectors_of_a_rank_are_one_pass() -> None:
    short, long = corrected((32, 10, 1.0), seconds=0.1), corrected((32, 10, 2.0), seconds=10.0)
    known = [
        one.model_copy(update={"model": "interaction", "recompute": "chunk", "precision": "fp32"})
        for one in (*short.corrections, *long.corrections)
    ]
    rates = CPU.alone.model_copy(update={"corrections": known})
    cost = on(InteractionGNNConfig(hidden=32), CPU.model_copy(update={"alone": rates}))
    size = SectorSize(20_000, 2_000)
    plain = on(InteractionGNNConfig(hidden=32)).compute_seconds(size, 4)
    several = [cost.compute_seconds(size, 4, sectors) / plain / sectors for sectors in (1, 4, 400)]
    assert several[0] < several[1] < several[2] == pytest.approx(2.0)


def test_several_measurements_at_one_place_have_their_geometric_mean() -> None:
    rates = corrected((16, 10, 2.0), (16, 10, 8.0))
    assert rates.factor("mlp", "none", "bf16", 16, 10, 1) == pytest.approx(4.0)


def test_ranks_beyond_those_measured_share_the_cores_in_turn() -> None:
    machine = CPU.model_copy(
        update={
            "alone": ONE,
            "together": Rates(seconds={"fp32": 3.0}),
            "ranks_together": 4,
            "crowding": 1.5,
        }
    )

    def seconds(sharers: int) -> float:
        return machine.seconds(sharers, lambda rates: rates.of({"fp32": 1.0}))

    assert [seconds(n) for n in (1, 2, 4, 8)] == [2.0, 2.5, 3.0, 3.0 * 2 * 1.5]
    accelerators = machine.model_copy(update={"accelerator": "A100"})
    assert accelerators.seconds(8, lambda rates: rates.of({"fp32": 1.0})) == 2.0


def test_a_rank_for_which_others_wait_has_their_cores() -> None:
    machine = CPU.model_copy(update={"ranks_together": 4, "crowding": 1.5, "waited_for": 0.25})
    assert [machine.slowdown(busy, 4) for busy in (1, 2, 4)] == pytest.approx([0.25, 0.5, 1.0])
    assert machine.slowdown(1, 2) == pytest.approx(0.25)
    # 8 ranks take turns on the cores of 4, each 1.5 times as long as its share.
    assert [machine.slowdown(busy, 8) for busy in (1, 4, 6, 8)] == pytest.approx(
        [0.25 / 3, 1 / 3, 6 / 8, 1.0]
    )
    assert machine.model_copy(update={"accelerator": "A100"}).slowdown(1, 4) == 1.0


def test_an_engine_takes_so_much_for_each_tensor_byte_and_pass() -> None:
    rates = Rates(seconds={}, engines={"zero3": {"tensors": 2.0, "weights": 0.5, "passes": 7.0}})
    known: EngineAmounts = {"tensors": 3.0, "weights": 4.0, "passes": 1.0}
    assert rates.of_engine("zero3", known) == 15.0
    assert rates.of_engine("fsdp2", known) == rates.of_engine(None, known) == 0.0


def test_tensors_of_weights_count_as_often_as_their_layer_is_called() -> None:
    """An attention network calls one layer over and over, the others each of theirs once."""
    for config in (InteractionGNNConfig(layers=3), AttentionGNNConfig(layers=3), EdgeMLPConfig()):
        count = on(config).footprint(cut=False)
        own = sum(1 for _ in make_model(config, 4, 6).parameters())
        assert (count.tensors > own) == (config.name == "attention"), config.name
        assert count.tensors >= own
    two, three, five = (on(AttentionGNNConfig(layers=n)).footprint(cut=False) for n in (2, 3, 5))
    assert two.weights == three.weights == five.weights
    assert five.tensors - three.tensors == 2 * (three.tensors - two.tensors) > 0


def test_products_count_in_the_precision_that_they_have() -> None:
    """An attention network computes its edges in bfloat16, its nodes in float32."""
    of = {
        precision: on(AttentionGNNConfig(precision=precision)).footprint(cut=False)
        for precision in ("fp32", "bf16")
    }
    edges, nodes = of["bf16"].flops[0], of["bf16"].flops[1:3].sum()
    assert not of["fp32"].bf16_flops.any()
    assert of["bf16"].flops == pytest.approx(of["fp32"].flops)
    assert of["bf16"].bf16_flops[0] == pytest.approx(edges)
    assert 0 < of["bf16"].bf16_flops[1:3].sum() < nodes


@pytest.mark.parametrize("compiler", [True, False])
def test_only_torchs_products_of_bfloat16_are_compiled_for_each_shape(
    monkeypatch: pytest.MonkeyPatch, compiler: bool
) -> None:
    monkeypatch.setattr(native, "library", lambda: object() if compiler else None)
    footprint.cache_clear()
    try:
        of_attention, of_float32, whole = (
            on(config).footprint(cut=False).shapes
            for config in (
                AttentionGNNConfig(precision="bf16"),
                AttentionGNNConfig(precision="fp32"),
                InteractionGNNConfig(precision="bf16"),
            )
        )
    finally:
        footprint.cache_clear()
    assert of_float32 == 0
    assert of_attention > 0
    assert whole == 0 if compiler else whole > of_attention


def test_the_last_chunk_starts_as_many_operations_as_a_full_one() -> None:
    cost = on(InteractionGNNConfig(hidden=32, layers=2))
    chunk = CPU_BYTES // (4 * 32)
    operations = [
        cost.pass_amounts(SectorSize(n, n), 1)["operations"] for n in (1, chunk, chunk + 1)
    ]
    assert operations[0] == operations[1]
    count = cost.footprint(cut=False).operations
    assert operations[2] == pytest.approx(2 * chunk * count[:3].sum() + count[3])
    whole = on(InteractionGNNConfig(hidden=32, layers=2, recompute="layer"))
    small, large = (whole.pass_amounts(SectorSize(n, n), 1)["operations"] for n in (1, 9_000))
    assert small == pytest.approx(large)


def test_only_large_tensors_are_asked_of_the_system() -> None:
    cost = on(EdgeMLPConfig(hidden=64, recompute="layer"))
    below = LARGE // (4 * 64) - 1
    assert cost.pass_amounts(SectorSize(below, 10), 1)["fresh"] == 0
    assert cost.pass_amounts(SectorSize(below + 1, 10), 1)["fresh"] > 10 * LARGE


def test_bfloat16_products_of_new_shapes_are_kept_on_a_cpu() -> None:
    config = AttentionGNNConfig(precision="bf16")
    cost = on(config)
    one, two, many = (cost.compiled_bytes(sizes, 1) for sizes in (1, 2, 10**6))
    assert one / 0.67e6 == pytest.approx(cost.footprint(cut=False).shapes)
    assert two == 2 * one
    assert math.isclose(many, 1024 * 0.67e6)
    assert on(config, A100).compiled_bytes(5, 1) == 0
    assert on(AttentionGNNConfig()).compiled_bytes(5, 1) == 0
