"""The cost model against closed formulas and small hand-made cases."""

import math
from dataclasses import replace
from functools import partial

import pytest

from bigtrk.cost.event_size import EventSize, event_size
from bigtrk.cost.footprint import activations, columns, footprint
from bigtrk.cost.machines import A100, CPU, MACHINES, Link, Machine, find_machine, machine_of
from bigtrk.cost.model import CostModel
from bigtrk.models.settings import InteractionGNNConfig, UserModelConfig
from bigtrk.parallel.engines.spec import Sharding
from bigtrk.parallel.settings import EngineSettings
from bigtrk.user_code import allow_code

EVENT = EventSize(10_000, 200_000, stored=8)
SIMPLE = "tests.models.user_models:Simple"


def cost(
    world: int = 1, engine: str = "ddp", machine: Machine = A100, hidden: int = 64
) -> CostModel:
    model = InteractionGNNConfig(hidden=hidden, layers=4)
    return CostModel(model, 4, 6, named(engine, world), world, ranks_per_node=4, machine=machine)


def named(engine: str, world: int) -> Sharding:
    """The sharding of "ddp", "fsdp2" or a shipped DeepSpeed file."""
    if engine.startswith("zero"):
        return EngineSettings(name="deepspeed", ds_config=engine).sharding(world)
    return EngineSettings.model_validate({"name": engine}).sharding(world)


@pytest.mark.parametrize(("parts", "ranks"), [(1, 1), (4, 2)])
def test_edges_fill_the_memory_before_they_go_to_files(parts: int, ranks: int) -> None:
    """Files have the tensors for which there is no room, and no other byte is counted twice or not
    at all.
    """
    model = replace(cost(world=2, machine=CPU), spills_beyond=0.0)
    without, edges = model.memory(EVENT, parts, ranks).total, model.away_bytes(EVENT, parts, ranks)
    tensor = 4 * 64 * EVENT.sector(parts).edges
    assert edges > 3 * tensor
    assert edges % tensor == pytest.approx(0, abs=1) or edges % tensor == pytest.approx(tensor)
    for tensors in (0.0, 0.9, 1.001, 2.5):
        room = replace(model, spills_beyond=without + tensors * tensor)
        kept = math.floor(tensors) * tensor
        assert room.memory(EVENT, parts, ranks).total == pytest.approx(without + kept)
        assert room.spilled_bytes(EVENT, parts, ranks) == pytest.approx(edges - kept, abs=2)
    roomy = replace(model, spills_beyond=without + 2 * edges)
    assert roomy.spilled_bytes(EVENT, parts, ranks) == 0
    # Then all inputs are in memory, those of the next step, too, where one sector's were.
    inputs = model.input_file_bytes(EVENT, parts, ranks) - model.edge_input_bytes(EVENT, parts)
    assert roomy.memory(EVENT, parts, ranks).total == pytest.approx(without + edges + inputs)
    in_memory = replace(model, spills_beyond=None)
    assert in_memory.spilled_bytes(EVENT, parts, ranks) == 0
    assert without < in_memory.memory(EVENT, parts, ranks).total


def test_a_slow_disk_is_waited_for() -> None:
    model = replace(cost(machine=replace(CPU, disk=1e6)), spills_beyond=0.0)
    moved = model.footprint(cut=False).moved
    seconds = float(moved @ [EVENT.edges, EVENT.nodes, EVENT.nodes, 1]) / 1e6
    assert model.seconds(EVENT, 1, 1) == pytest.approx(seconds)
    all_kept = replace(model, spills_beyond=1e15)
    assert all_kept.seconds(EVENT, 1, 1) == all_kept.compute_seconds(EVENT.sector(1), 1)


def test_sectors_on_one_host_are_priced_at_its_link() -> None:
    network = replace(A100.network, between=Link(latency=1.0, bandwidth=1.0))
    slow, fast = cost(8, machine=replace(A100, network=network)), cost(8)
    assert slow.exchange_seconds(EVENT, 4) == fast.exchange_seconds(EVENT, 4)
    assert slow.exchange_seconds(EVENT, 8) > 1


def test_merging_stored_sectors_takes_memory_for_a_while() -> None:
    model, whole = cost(world=2, machine=CPU), replace(EVENT, stored=2)
    size = EVENT.sector(2)
    # Features that are merged lie in memory, others in their file.
    features = 4 * (model.n_edge_features * size.edges + model.n_node_features * size.nodes)
    more = model.memory(EVENT, 2, 2).total - model.memory(whole, 2, 2).total
    assert more == pytest.approx(100 * size.edges + 2 * features)
    once = replace(model, reads_ahead=False)
    more = once.memory(EVENT, 2, 2).total - once.memory(whole, 2, 2).total
    assert more == pytest.approx(features)


@pytest.mark.parametrize("recompute", ["none", "layer", "chunk"])
def test_sectors_of_a_rank_are_saved_together_and_computed_one_after_another(
    recompute: str,
) -> None:
    """Edges between layers are of all of them, what a layer works with beside them is of one."""
    config = InteractionGNNConfig.model_validate(
        {"hidden": 16, "layers": 3, "recompute": recompute}
    )
    model = replace(cost(world=8, machine=CPU), model=config)
    event = EventSize(100_000, 2_000_000)
    apart, together = model.memory(event, 8, 8), model.memory(event, 8, 2)
    assert together.inputs == 4 * apart.inputs
    # Buffers of a chunk, which are saved too, are there once.
    assert 3.5 * apart.saved < together.saved < 4.001 * apart.saved
    merged = model.memory(event, 2, 2)
    assert together.total < 4 * apart.total
    if recompute == "layer":
        assert together.working < merged.working
        assert together.total < merged.total


def test_what_leaves_a_rank_takes_time_and_what_stays_does_not() -> None:
    model = cost(world=8)
    assert model.exchange_seconds(EVENT, 1) == 0
    compute = model.compute_seconds(EVENT.sector(8), 8)
    assert model.seconds(EVENT, 8, 1) == pytest.approx(8 * compute, rel=1e-12)
    # Of three sectors on a rank and two on the other the first decides.
    five = model.compute_seconds(EVENT.sector(5), 5)
    exchanged = model.exchange_seconds(EVENT, 2)
    assert model.seconds(EVENT, 5, 2) == pytest.approx(3 * five + exchanged, rel=1e-12)


@pytest.mark.parametrize("recompute", ["layer", "chunk"])
def test_many_sectors_take_what_is_counted_of_few(recompute: str) -> None:
    """Their activations are not counted, but follow from those of two and three."""
    config = InteractionGNNConfig.model_validate({"hidden": 8, "layers": 2, "recompute": recompute})
    model = replace(cost(machine=CPU), model=config)
    size = EventSize(100_000, 2_000_000).sector(5)
    count = footprint(config, 4, 6, cut=True, sectors=5)
    sizes = [size.edges, size.nodes, size.owned, 1]
    saved, peak = activations(partial(model.footprint, True), size, 5)
    assert saved == pytest.approx(float(count.saved @ sizes), rel=0.001)
    assert peak == pytest.approx(float((count.live @ sizes).max()), rel=0.001)


def test_a_model_of_the_simple_form_has_its_sectors_merged() -> None:
    simple = UserModelConfig(name=SIMPLE)
    allow_code(["tests.models.user_models"])
    model = replace(cost(), model=simple)
    assert model.memory(EVENT, 8, 2) == model.memory(EVENT, 2, 2)


def test_offloading_takes_memory_of_the_accelerator_s_host_and_time() -> None:
    chunk, offload = (
        replace(cost(), model=InteractionGNNConfig(layers=4, recompute=recompute))
        for recompute in ("chunk", "offload")
    )
    assert offload.memory(EVENT, 1, 1).total < chunk.memory(EVENT, 1, 1).total
    # Buffers of a chunk, which are saved too, are nothing beside a large event.
    large = EventSize(100_000, 20_000_000)
    assert offload.memory(large, 1, 1).saved < 0.3 * chunk.memory(large, 1, 1).saved
    assert offload.away_bytes(large, 1, 1) > 0.9 * chunk.memory(large, 1, 1).saved
    assert chunk.away_bytes(EVENT, 1, 1) == 0
    # Edges travel beside the computation: what takes longer counts.
    moved = offload.footprint(cut=False).moved @ [EVENT.edges, EVENT.nodes, EVENT.nodes, 1]
    fast, slow = (
        replace(offload, machine=replace(A100, transfer=rate, launch=0.0)) for rate in (1e13, 1e8)
    )
    kept = replace(chunk, machine=fast.machine)
    assert fast.seconds(EVENT, 1, 1) == pytest.approx(kept.seconds(EVENT, 1, 1), rel=0.1)
    assert slow.seconds(EVENT, 1, 1) == pytest.approx(moved / 1e8)


def test_more_ranks_shard_what_the_engine_shards() -> None:
    sizes = {}
    for engine in ("ddp", "zero1", "zero2", "zero3", "fsdp2"):
        one = cost(world=1, engine=engine, hidden=256).memory(EVENT, 1, 1)
        many = cost(world=1024, engine=engine, hidden=256).memory(EVENT, 1, 1)
        levers = ("parameters", "gradients", "optimizer")
        sizes[engine] = [getattr(many, lever) < 0.6 * getattr(one, lever) for lever in levers]
    assert sizes["ddp"] == [False, False, False]
    # Gradients are all there before they are reduced.
    assert sizes["zero1"] == sizes["zero2"] == [False, False, True]
    # Weights that are gathered stay for a whole pass, and so does a bucket of gradients.
    assert sizes["zero3"] == [False, True, True]
    assert sizes["fsdp2"] == [True, True, True]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_seconds_are_the_highest_roof(machine: Machine) -> None:
    """The roofs are products, bytes and launches; a slower machine is slower under each."""
    size, model = EVENT.sector(1), cost(machine=machine)
    count, sizes = model.footprint(cut=False), columns(size)
    roofs = (
        float(count.flops @ sizes) / machine.fp32,
        float(count.traffic @ sizes) / machine.bandwidth,
        float(count.operations @ sizes) * machine.launch,
    )
    assert model.compute_seconds(size, 1) == pytest.approx(max(roofs))
    slow = replace(model, machine=machine.slower(3))
    assert slow.compute_seconds(size, 1) == pytest.approx(3 * max(roofs))


def test_a_gpu_without_a_known_sheet_is_taken_for_an_a100() -> None:
    assert machine_of("NVIDIA H200") == MACHINES["H200"]
    assert machine_of("NVIDIA H100 NVL").bandwidth == 3.9e12 / 2
    assert machine_of("Another GPU") == A100
    said = "--machine B200: is unknown; use cpu, A100, H100, H200, or leave it out"
    with pytest.raises(ValueError, match=said):
        find_machine("B200")


def test_ranks_of_a_cpu_host_share_it() -> None:
    size = EVENT.sector(1)
    seconds = {n: cost(n, machine=CPU, hidden=256).compute_seconds(size, 1) for n in (1, 2, 4)}
    assert seconds[2] == pytest.approx(2 * seconds[1])
    assert seconds[4] == pytest.approx(4 * seconds[1])
    assert cost(4).compute_seconds(size, 1) == cost(1).compute_seconds(size, 1)


@pytest.mark.parametrize("engine", ["ddp", "fsdp2", "zero1"])
def test_all_ranks_together_hold_an_average_once(engine: str) -> None:
    for world in (1, 4):
        without = cost(world, engine)
        averaging = replace(without, averages=True)
        more = averaging.memory(EVENT, 1, 1).optimizer - without.memory(EVENT, 1, 1).optimizer
        assert more == pytest.approx(4 * without.footprint(cut=False).weights.total / world)


def test_layers_are_gathered_in_each_micro_step() -> None:
    """Weights are gathered in both passes; ZeRO scatters gradients each time, FSDP2 once."""
    times = {
        name: cost(2, name).reduction_seconds(3) / cost(2, name).reduction_seconds()
        for name in ("ddp", "zero0", "zero1", "zero2", "zero3", "fsdp2")
    }
    expected = {"ddp": 1, "zero0": 1, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp2": 7 / 3}
    assert times == pytest.approx(expected)


def test_an_event_has_the_cut_quality_of_its_record() -> None:
    quality = {"cut_fraction": 0.02, "halo_fraction": 0.1, "edge_imbalance": 1.01}
    size = event_size({"nodes": 1000, "edges": 8000, "parts": 4, "quality": quality})
    sector = size.sector(4)
    assert sector.edges == pytest.approx(8000 * 1.02 * 1.01 / 4)
    assert sector.halo == pytest.approx(1000 * 0.1 / 4)
    assert sector.owned == 250
    assert size.sector(1).halo == 0


def test_a_process_takes_its_engine_s_modules() -> None:
    taken = {"ddp": (0, 68), "fsdp2": (72,) * 2, "zero0": (15,) * 2, "zero3": (127,) * 2}  # MiB
    for engine, modules in taken.items():
        for world, extra in zip((1, 3), modules, strict=True):
            memory = cost(world, engine, CPU).memory(EVENT, 1, 1)
            assert memory.process == CPU.process_bytes + extra * 2**20
    assert cost(2, "zero1").memory(EVENT, 1, 1).process == A100.process_bytes
