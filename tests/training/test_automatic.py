"""The choice of settings: the order of options, what fits, what stays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bigtrk.cost.event_size import MOST_EXCESS, EventSize
from bigtrk.cost.machines import A100, CPU
from bigtrk.errors import InputError
from bigtrk.parallel.routing import Cut
from bigtrk.training.automatic import Limit, Option, Task, candidates, choose, options
from bigtrk.training.fitting import GIB, make_cost
from bigtrk.training.settings import Configuration

EVENT = EventSize(20_000, 400_000)
WORLD = 4


def task(gib: float, world: int = WORLD, **sections: dict[str, Any]) -> Task:
    content = {**sections, "model": {"hidden": 16, "layers": 2, **sections.get("model", {})}}
    configuration = Configuration.model_validate(content)
    return Task(configuration, [EVENT], world, world, CPU, Limit(gib * GIB, 1), cuttable=True)


def values(option: Option) -> dict[str, str]:
    return dict(option.candidate.values)


def memory(option: Option, asked: Task) -> float:
    """Returns the bytes of an option by the cost model alone."""
    configuration = option.candidate.configured(asked.configuration)
    cost = make_cost(configuration, asked.world, asked.world, CPU, events=len(asked.sizes))
    return cost.memory(replace(EVENT, excess=MOST_EXCESS), *option.cut).total


def test_options_come_from_least_to_most_computed_anew_and_then_sharded() -> None:
    known = list(options(task(1, world=2)))
    assert [one.sectors for one in known[:8]] == [2, 4, 8, 16, 32, 64, 128, 256]
    order = list(dict.fromkeys(tuple(values(one).values()) for one in known))
    ways = ["none", "layer", "chunk"]
    assert order == [(way, engine) for engine in ("ddp", "fsdp2") for way in ways]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_the_first_that_fits_is_chosen(world: int) -> None:
    limits = sorted({one.memory / GIB for one in options(task(100, world))})
    for gib in [*limits[::3], 2 * limits[-1]]:
        asked = task(gib + 1e-9, world)
        *before, chosen = choose(asked)
        assert chosen.fits
        assert not any(one.fits for one in before)
        assert memory(chosen, asked) <= chosen.memory <= asked.limit.budget
        assert all(memory(one, asked) > asked.limit.budget for one in before)


def test_each_rank_has_work() -> None:
    """One event a step is cut for all ranks, four are not; of three ranks none is left idle."""
    assert choose(task(100))[-1].sectors == 4
    assert choose(task(100, training={"events_per_step": 4}))[-1].sectors == 1
    assert choose(task(100, world=3))[-1].sectors == 4


def test_too_little_memory_names_the_least_that_would_do() -> None:
    asked = replace(task(1, 1), limit=Limit(0.25 * GIB, 0.83))
    with pytest.raises(InputError, match="of which 83% may be filled") as refused:
        choose(asked)
    assert "\n" not in str(refused.value)
    words = str(refused.value).split()
    enough = float(words[words.index("GiB", words.index("least")) - 1])
    chosen = choose(replace(asked, limit=Limit(enough * GIB, 0.83)))[-1]
    assert chosen.memory <= 0.83 * enough * GIB
    with pytest.raises(InputError, match=r"GiB are needed, with model\.recompute="):
        choose(replace(asked, limit=Limit((enough - 0.003) * GIB, 0.83)))


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("model", "recompute", "offload"),
        ("model", "recompute", "layer"),
        ("model", "precision", "bf16"),
        ("engine", "name", "fsdp2"),
        ("training", "routing", "stored"),
    ],
)
def test_what_is_configured_stays(section: str, key: str, value: str) -> None:
    sections: dict[str, Any] = {section: {key: value}}
    asked = task(8, **sections)
    for found in options(asked):
        assert f"{section}.{key}" not in values(found)
        configured = found.candidate.configured(asked.configuration)
        assert getattr(getattr(configured, section), key) == value


def test_candidates_are_what_model_and_optimizer_allow() -> None:
    attention = Configuration.model_validate({"model": {"name": "attention"}})
    ways = [dict(one.values)["model.recompute"] for one in candidates(attention, 1, on_cpu=True)]
    assert ways == ["none", "layer"]
    own = Configuration.model_validate({"model": {"name": "tests.models.user_models:Simple"}})
    assert [dict(one.values) for one in candidates(own, 1, True)] == [{"engine.name": "ddp"}]
    asked = Configuration.model_validate({"optimizer": {"name": "muon"}})
    found = candidates(asked, 4, on_cpu=True)
    assert {dict(one.values)["engine.name"] for one in found} == {"ddp"}
    assert all(one.configured(asked).optimizer.name == "muon" for one in found)


def test_the_state_is_sharded_only_where_it_does_not_fit() -> None:
    """A wide model: its weights, gradients and moments are most of what a rank holds."""
    model, small = {"hidden": 512, "layers": 8, "recompute": "chunk"}, EventSize(200, 1000)
    held = {}
    for engine in ("ddp", "fsdp2"):
        content = {"model": model, "engine": {"name": engine}}
        cost = make_cost(Configuration.model_validate(content), 4, 4, CPU, events=1)
        held[engine] = cost.memory(small, 1, 1).total
    asked = replace(task(1, model=model), sizes=[small], cuttable=False)
    for budget, engine in ((held["fsdp2"] + 1e6, "fsdp2"), (held["ddp"] + 1e6, "ddp")):
        chosen = choose(replace(asked, limit=Limit(budget, 1)))[-1]
        assert values(chosen)["engine.name"] == engine


def test_stored_sectors_fit_are_merged_and_never_cut_further() -> None:
    """They fit even where the largest is as uneven as METIS leaves one in ten."""
    small = task(0.33, world=2)
    cut = replace(EVENT, excess=MOST_EXCESS, stored=choose(small)[-1].sectors)
    assert choose(replace(small, sizes=[cut], cuttable=False))[-1].fits
    asked = replace(task(8), sizes=[replace(EVENT, stored=2)])
    assert {found.sectors for found in options(asked)} == {1}
    assert max(found.cut.parts for found in options(asked)) <= 2
    whole = replace(task(8), cuttable=False)
    assert {found.cut for found in options(whole)} == {Cut(1, 1)}


def test_files_are_chosen_where_memory_alone_does_not_do(tmp_path: Path) -> None:
    """The choice is the same without a folder as long as anything fits in memory."""
    spilling = {"training": {"spill": str(tmp_path)}}
    least = min(one.memory for one in options(task(0.1, world=1)))
    found = choose(task(least / GIB, world=1, **spilling))[-1]
    assert ("training.spill", "null") in found.candidate.values
    too_little = (least - 1e6) / GIB
    with pytest.raises(InputError, match=r"fits all events .* set training\.spill=FOLDER"):
        choose(task(too_little, world=1))
    spilled = choose(task(too_little, world=1, **spilling))[-1]
    assert values(spilled) == {"model.recompute": "chunk", "engine.name": "ddp"}
    assert spilled.memory <= too_little * GIB


def test_files_are_no_candidate_on_a_gpu(tmp_path: Path) -> None:
    asked = task(1e-4, world=1, training={"spill": str(tmp_path)})
    on_card = replace(asked, machine=A100, cuttable=False)
    assert all(("training.spill", "null") in one.candidate.values for one in options(on_card))
    with pytest.raises(InputError, match=r"fits all events .*, set model\.recompute=offload, add"):
        choose(on_card)


def test_every_event_of_many_fits() -> None:
    sizes = [EventSize(1000 + i, 10_000 + 37 * i) for i in range(500)]
    sizes[137], sizes[411] = EventSize(2_000, 200_000), EventSize(30_000, 15_000)
    asked = replace(task(8, 1), sizes=sizes, cuttable=False)
    limited = replace(asked, limit=Limit(choose(asked)[-1].memory * 0.99, 1))
    chosen = choose(limited)[-1]
    configuration = chosen.candidate.configured(asked.configuration)
    cost = make_cost(configuration, 1, 1, CPU, events=len(sizes))
    assert max(cost.memory(size, 1, 1).total for size in sizes) <= limited.limit.budget


def test_a_limit_is_written_down_and_never_rounded_up() -> None:
    for gib in (0.3, 1.2345678, 40.0):
        limit = Limit(gib * GIB)
        assert limit.budget == float(str(limit.budget_gib)) * GIB <= 0.9 * gib * GIB
        enough = Limit(limit.enough_gib(gib * GIB) * GIB)
        assert gib * GIB <= enough.budget <= (gib + 0.003) * GIB
