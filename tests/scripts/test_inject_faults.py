"""The pure parts of scripts/faults/inject_faults.py."""

import random
from collections import Counter
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from scripts.faults.fault_rounds import ENGINES, STEPS, Outcome
from scripts.faults.faults import FAULTS
from scripts.faults.inject_faults import plans, summary, table


def test_the_seed_decides_on_the_rounds() -> None:
    faults, engines = list(FAULTS), list(ENGINES)
    many = 3 * len(faults) + 1
    rounds = plans(many, 5, faults, engines, [2, 3])
    assert rounds == plans(many, 5, faults, engines, [2, 3])
    assert rounds != plans(many, 6, faults, engines, [2, 3])
    counts = Counter(plan.fault for plan in rounds)
    assert sorted(counts.values()) == [3] * (len(faults) - 1) + [4]
    assert [plan.engine for plan in rounds[: 2 * len(engines)]] == engines * 2
    assert {plan.in_save for plan in rounds} == {True, False}
    assert {(plan.ranks, plan.rank) for plan in rounds} == {(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)}
    twice = {(plan.fault, plan.ranks) for plan in rounds[: 2 * len(faults)]}
    assert len(twice) == 2 * len(faults), "each fault on 2 ranks and on 3"
    assert all(plan.step in STEPS for plan in rounds)


@pytest.mark.parametrize("fault", [name for name, fault in FAULTS.items() if fault.damage])
def test_damage_is_done_each_time(tmp_path: Path, fault: str) -> None:
    damage = FAULTS[fault].damage
    assert damage is not None
    path = tmp_path / "shard"
    content = bytes(100) + b"values" + bytes(100)
    for seed in range(20):
        path.write_bytes(content)
        damage(path, random.Random(seed))
        assert not path.exists() or path.read_bytes() != content


def test_outcomes_are_accounted() -> None:
    one, two = plans(2, 0, ["rank stopped", "disk full"], ["ddp"], [2])
    good = Outcome(one, detected=True, hung=False, seconds=2.4, again=3, lost=0, wrong="")
    hung = replace(good, detected=False, hung=True, seconds=61.0)
    bad = replace(good, plan=two, again=5, lost=2, wrong="other losses")
    outcomes = [good, hung, bad, replace(bad, again=4, lost=0, wrong="", seconds=9.6)]
    assert summary(outcomes) == {
        "rounds": 4, "undetected": 1, "hangs": 1, "steps_lost": 2, "wrong": 1
    }  # fmt: skip
    console = Console(file=StringIO(), width=120, record=True)
    console.print(table(outcomes))
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in console.export_text().splitlines()
        if line.startswith("│")
    ]
    assert [one.fault, "2", "1", "0", "3", "> 60", "0"] in rows
    assert [two.fault, "2", "2", "2", "5", "10", "1"] in rows
