"""The choice against all candidates, one by one: what fits, what is fastest, what stays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bigtrk.cost.cut_law import MOST_EXCESS
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import A100, CPU, MachineConstants
from bigtrk.errors import InputError
from bigtrk.parallel.routing import Cut, even_cut, finer_cuts, merged_cuts
from bigtrk.training.automatic.candidates import candidates
from bigtrk.training.automatic.choice import choose
from bigtrk.training.automatic.margin import GIB, Limit, safe_share
from bigtrk.training.automatic.prediction import Task
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration

EVENT = EventSize(20_000, 400_000)
UNEVEN = replace(EVENT, excess=MOST_EXCESS)  # its cuts have to fit so
WORLD = 4
STAY = ("training.routing", "stored")
STORED = [1 << i for i in range(9)]  # the numbers of sectors that whole events may be cut in


def task(gib: float, world: int = WORLD, **sections: dict[str, Any]) -> Task:
    content = {**sections, "model": {"hidden": 16, "layers": 2, **sections.get("model", {})}}
    configuration = Configuration.model_validate(content)
    return Task(configuration, [EVENT], world, world, CPU, Limit(gib * GIB), cuttable=True)


Found = dict[tuple[str, str], dict[Cut, tuple[float, float]]]


def every_prediction(asked: Task) -> Found:
    """Returns bytes and seconds by recomputation and precision, and by cut, from the cost model
    alone.
    """
    found: Found = {}
    for recompute in ("none", "layer", "chunk"):
        for precision in ("fp32", "bf16"):
            model = {"hidden": 16, "layers": 2, "recompute": recompute, "precision": precision}
            configuration = Configuration.model_validate({"model": model})
            cost = make_cost(configuration, asked.world, asked.world, CPU, events=len(asked.sizes))
            of_cuts = found.setdefault((recompute, precision), {})
            for cut in {cut for stored in STORED for cut in all_cuts(stored, asked.world)}:
                seconds = cost.seconds(EVENT, *cut) + cost.step_seconds()
                of_cuts[cut] = cost.memory(UNEVEN, *cut).total, seconds
    return found


def all_cuts(stored: int, world: int) -> list[Cut]:
    return [*merged_cuts(stored, world), *finer_cuts(stored, world), even_cut(stored, world)]


def fitting(of_cuts: dict[Cut, tuple[float, float]], world: int, limit: float) -> list[float]:
    """Returns the seconds of what fits: of several sectors on a rank, which routing has only where
    one does not fit, all that are stored.
    """
    found = []
    for stored in STORED:
        for cuts in (merged_cuts(stored, world), finer_cuts(stored, world)):
            fits = [of_cuts[cut][1] for cut in cuts if of_cuts[cut][0] <= limit]
            found += fits
            if fits:
                break
        finest = even_cut(stored, world)
        if finest.most_on_a_rank > 1 and of_cuts[finest][0] <= limit:
            found.append(of_cuts[finest][1])
    return found


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("allow_bf16", [False, True])
def test_the_fastest_that_fits_is_chosen(world: int, allow_bf16: bool) -> None:
    every = every_prediction(task(1, world))
    open_ones = {key: cuts for key, cuts in every.items() if allow_bf16 or key[1] == "fp32"}
    limits = sorted(memory / GIB for cuts in open_ones.values() for memory, _ in cuts.values())
    for gib in [*limits[::5], 2 * limits[-1]]:
        gib += 1e-9
        asked = replace(task(gib, world), allow_bf16=allow_bf16)
        chosen = choose(asked).chosen
        assert chosen.memory <= gib * GIB
        fits = [s for cuts in open_ones.values() for s in fitting(cuts, world, gib * GIB)]
        assert chosen.seconds == pytest.approx(min(fits), rel=1e-9)
        values = dict(chosen.candidate.values)
        way = values["model.recompute"], values.get("model.precision", "fp32")
        assert every[way][chosen.cut][0] == chosen.memory


def test_too_little_memory_names_the_least_that_would_do() -> None:
    every = every_prediction(task(1, 1)).values()
    least = min(memory for cuts in every for memory, _ in cuts.values())
    with pytest.raises(InputError, match="the least that would do is") as refused:
        choose(task(least / GIB * 0.9, 1, model={"precision": "bf16"}))
    assert "\n" not in str(refused.value)
    words = str(refused.value).split()
    enough = float(words[words.index("GiB,", words.index("least")) - 1])
    assert choose(task(enough, 1, model={"precision": "bf16"})).chosen.memory <= enough * GIB
    with pytest.raises(InputError, match="the least that would do is"):
        choose(task(enough - 0.002, 1, model={"precision": "bf16"}))


def test_the_memory_that_would_do_leaves_its_margin() -> None:
    asked = replace(task(1, 1), limit=Limit(0.3 * GIB, 0.83))
    with pytest.raises(InputError, match="of which 83% may be filled") as refused:
        choose(asked)
    words = str(refused.value).split()
    enough = float(words[words.index("GiB,", words.index("least")) - 1])
    chosen = choose(replace(asked, limit=Limit(enough * GIB, 0.83))).chosen
    assert chosen.memory <= 0.83 * enough * GIB


@pytest.mark.parametrize("recompute", ["none", "layer", "chunk", "offload"])
def test_a_configured_recomputation_stays(recompute: str) -> None:
    asked = replace(task(8, model={"recompute": recompute}), allow_bf16=True)
    for found in choose(asked).considered:
        assert found.candidate.configured(asked.configuration).model.recompute == recompute


def test_a_configured_precision_stays() -> None:
    for precision in ("fp32", "bf16"):
        asked = replace(task(8, model={"precision": precision}), allow_bf16=True)
        for found in choose(asked).considered:
            assert found.candidate.configured(asked.configuration).model.precision == precision


def test_a_configured_engine_stays() -> None:
    for engine in ({"name": "fsdp2"}, {"name": "deepspeed", "ds_config": "zero2"}):
        asked = task(8, engine=engine)
        for found in choose(asked).considered:
            assert found.candidate.configured(asked.configuration).engine == (
                Configuration.model_validate({"engine": engine}).engine
            )


def test_several_sectors_on_a_rank_are_asked_for_where_routing_would_merge_them() -> None:
    considered = choose(task(8, world=2)).considered
    finer = [one for one in considered if "training.routing" in dict(one.candidate.values)]
    assert finer
    layouts = {(one.candidate.routed, one.cut) for one in considered if one not in finer}
    for one in finer:
        assert dict(one.candidate.values)["training.routing"] == "stored"
        assert one.cut == Cut(one.sectors, 2)
        assert one.sectors_per_rank > 1
        assert (one.candidate.routed, one.cut) not in layouts


@pytest.mark.parametrize("routing", ["automatic", "stored"])
def test_a_configured_routing_stays(routing: str) -> None:
    for found in choose(task(8, training={"routing": routing})).considered:
        assert "training.routing" not in dict(found.candidate.values)


def test_precision_is_left_alone_unless_allowed() -> None:
    found = choose(task(8)).considered
    assert all("model.precision" not in dict(one.candidate.values) for one in found)


def test_models_without_recomputation_have_one_candidate() -> None:
    attention = Configuration.model_validate({"model": {"name": "attention"}})
    values = [one.values for one in candidates(attention, 1, allow_bf16=False, on_cpu=True)[0]]
    assert [dict(one)["model.recompute"] for one in values] == ["none", "layer"]
    own = Configuration.model_validate({"model": {"name": "tests.models.user_models:Simple"}})
    assert [dict(one.values) for one in candidates(own, 1, False, True)[0]] == [
        {"engine.name": "ddp"}
    ]


def test_muon_is_given_no_engine_that_shards() -> None:
    asked = Configuration.model_validate({"optimizer": {"name": "muon"}})
    [group] = candidates(asked, 4, allow_bf16=False, on_cpu=True)
    assert {dict(one.values)["engine.name"] for one in group} == {"ddp"}
    for one in group:
        assert one.configured(asked).optimizer.name == "muon"


def test_the_state_is_sharded_only_where_it_does_not_fit() -> None:
    """A wide model: its weights, gradients and moments are most of what a rank holds."""
    model = {"hidden": 512, "layers": 8, "recompute": "chunk"}
    configuration = Configuration.model_validate({"model": model})
    small = [EventSize(200, 1000)]
    replicated, sharded = (
        make_cost(
            Configuration.model_validate({"model": model, "engine": {"name": engine}}), 4, 4, CPU
        )
        .memory(small[0], 1, 1)
        .total
        for engine in ("ddp", "fsdp2")
    )
    assert sharded < replicated
    between = Task(configuration, small, 4, 4, CPU, Limit((sharded + replicated) / 2))
    assert dict(choose(between).chosen.candidate.values)["engine.name"] in ("fsdp2", "deepspeed")
    roomy = choose(replace(between, limit=Limit(2 * replicated)))
    assert {dict(one.candidate.values)["engine.name"] for one in roomy.considered} == {"ddp"}
    spikes = {"training": {"spike_guard": "skip"}, "model": model}
    guarded = replace(between, configuration=Configuration.model_validate(spikes))
    engines = {dict(one.candidate.values)["engine.name"] for one in choose(guarded).considered}
    assert engines == {"ddp", "fsdp2"}


def test_an_event_fits_once_it_is_cut() -> None:
    """Also where its largest sector is as uneven as METIS leaves one in ten."""
    asked = task(0.33, world=2)
    chosen = choose(asked).chosen
    assert chosen.sectors > 1
    cut = replace(UNEVEN, stored=chosen.sectors)
    assert choose(replace(asked, sizes=[cut], cuttable=False)).chosen.memory <= chosen.memory


def test_stored_sectors_are_merged_and_never_cut_further() -> None:
    asked = replace(task(8), sizes=[replace(EVENT, stored=2)])
    assert {found.sectors for found in choose(asked).considered} == {1}
    assert max(found.cut.parts for found in choose(asked).considered) <= 2
    whole = replace(task(8), cuttable=False)
    assert {found.cut.parts for found in choose(whole).considered} == {1}


def test_stored_sectors_may_stay_apart() -> None:
    """Also of a training that starts, whose events are cut already."""
    asked = replace(task(8, 1), sizes=[replace(EVENT, stored=8)], cuttable=False)
    found = choose(asked)
    stored = {one.cut for one in found.considered if STAY in one.candidate.values}
    routed = {one.cut for one in found.considered if STAY not in one.candidate.values}
    assert (stored, routed) == ({Cut(8, 1)}, {Cut(1, 1)})
    assert found.chosen.seconds == min(one.seconds or 0.0 for one in found.considered)
    merging = replace(asked, configuration=task(8, training={"routing": "automatic"}).configuration)
    assert all(STAY not in one.candidate.values for one in choose(merging).considered)


def test_sectors_are_as_few_as_are_as_fast() -> None:
    chosen = choose(task(8)).chosen
    assert chosen.sectors == chosen.cut.parts


def test_files_are_chosen_where_memory_alone_does_not_do(tmp_path: Path) -> None:
    """The choice is the same without a folder as long as anything fits in memory."""
    spilling = {"training": {"spill": str(tmp_path)}}
    needed = [one.memory for one in choose(task(100.0, world=1)).considered]
    enough, too_little = min(needed) / GIB, (min(needed) - 1e6) / GIB
    found = choose(task(enough, world=1, **spilling)).chosen
    assert ("training.spill", "null") in found.candidate.values
    assert found.seconds == choose(task(enough, world=1)).chosen.seconds
    with pytest.raises(InputError, match=r"fit all events .* set training\.spill=FOLDER"):
        choose(task(too_little, world=1))
    on_card = replace(task(0.01, world=1), machine=A100)
    with pytest.raises(InputError, match=r"fit all events .* set model\.recompute=offload, give"):
        choose(on_card)
    spilled = choose(task(too_little, world=1, **spilling)).chosen
    assert spilled.candidate.values[0] == ("model.recompute", "chunk")
    assert ("training.spill", "null") not in spilled.candidate.values
    assert spilled.memory <= too_little * GIB


def test_files_are_no_remedy_where_a_process_alone_is_too_large() -> None:
    with pytest.raises(InputError, match=r"in up to \d+ sectors.*: give as much, add ranks"):
        choose(task(0.2, world=1))


def test_files_are_no_candidate_where_the_same_layout_fits_in_memory(tmp_path: Path) -> None:
    spilling = {"training": {"spill": str(tmp_path)}}
    found = choose(task(100.0, world=1, **spilling)).considered
    assert found
    assert all(("training.spill", "null") in one.candidate.values for one in found)


def test_files_are_no_candidate_on_a_gpu(tmp_path: Path) -> None:
    on_card = replace(task(1e-4, world=1, training={"spill": str(tmp_path)}), machine=A100)
    with pytest.raises(InputError, match=r"least that would do .* training\.spill=null"):
        choose(on_card)
    enough = replace(on_card, limit=Limit(100 * GIB))
    considered = choose(enough).considered
    assert all(("training.spill", "null") in one.candidate.values for one in considered)


def test_every_event_of_many_fits() -> None:
    # The fastest way of them all does not take the least memory.
    sizes = [EventSize(1000 + i, 10_000 + 37 * i) for i in range(500)]
    sizes[137], sizes[411] = EventSize(2_000, 200_000), EventSize(30_000, 15_000)
    asked = replace(task(8, 1), sizes=sizes, cuttable=False)
    memory = choose(asked).chosen.memory
    limited = choose(replace(asked, limit=Limit(memory * 0.99)))
    model = {"hidden": 16, "layers": 2, **_model(limited.chosen.candidate.values)}
    cost = make_cost(Configuration.model_validate({"model": model}), 1, 1, CPU)
    assert max(cost.memory(size, 1, 1).total for size in sizes) <= memory * 0.99


def _model(values: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {key.removeprefix("model."): value for key, value in values if key.startswith("model.")}


@pytest.mark.parametrize(
    ("errors", "exceeded", "share"),
    [
        ([], {}, 0.9),
        ([0.2, -0.05], {}, 0.9),
        ([0.1, -0.2], {}, 0.8),
        ([], {"memory": 1.25, "seconds": 3.0}, 0.8),
    ],
)
def test_the_margin_follows_the_known_residuals(
    errors: list[float], exceeded: dict[str, float], share: float
) -> None:
    machine: MachineConstants = CPU.model_copy(
        update={"exceeded": exceeded, "fit": {"relative_errors": {"memory": errors}}}
    )
    assert safe_share(machine) == pytest.approx(share)


def test_a_limit_is_written_down_and_never_rounded_up() -> None:
    for gib in (0.3, 1.2345678, 40.0):
        limit = Limit(gib * GIB, 0.9)
        assert limit.budget == float(str(limit.budget_gib)) * GIB <= 0.9 * gib * GIB
        enough = Limit(limit.enough_gib(gib * GIB) * GIB, 0.9)
        assert gib * GIB <= enough.budget <= (gib + 0.003) * GIB
