"""Populations, with a training that a stand-in writes: the same decisions whatever happens."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bigtrk.errors import InputError
from bigtrk.records.studies import read_search
from bigtrk.studies.search.plan import Search
from bigtrk.studies.search.search import run_search
from tests.studies.search import stand_in_searches as fakes

SPACE = """\
metric: train_loss
space:
  optimizer.lr: {low: 0.0001, high: 1.0}
population: {every: 1, part: 0.25}
seed: 2
"""
TRIALS = 4
Plan = Callable[..., Search]


def check(rounds: list[dict[str, Any]]) -> None:
    """Checks what was decided against a plain account of it."""
    at = {(one["round"], one["trial"]): one for one in rounds}
    assert set(at) == {(n, t) for n in range(fakes.EPOCHS) for t in range(TRIALS)}
    exploits = [one for one in rounds if one["source"] is not None]
    assert len(exploits) == fakes.EPOCHS - 1
    for one in rounds:
        number, trial = one["round"], one["trial"]
        assert one["value"] == pytest.approx(one["settings"]["optimizer.lr"] + 1 / one["epochs"])
        seen = number - 1
        if one["source"] is None:
            before = at.get((number - 1, trial))
            assert before is None or before["settings"] == one["settings"]
            assert one["epochs"] == (before["epochs"] if before else 0) + 1
            continue
        values = {t: at[seen, t]["value"] for t in range(TRIALS)}
        assert trial == max(values, key=lambda t: values[t])
        assert one["source"] == min(values, key=lambda t: values[t])
        assert one["source_round"] == seen
        assert one["epochs"] == at[seen, one["source"]]["epochs"] + 1


def check_epochs(rounds: list[dict[str, Any]]) -> None:
    """Checks that each trial has recorded each epoch that its last round counts once."""
    trained = {one["trial"]: one["epochs"] for one in rounds}
    assert trained.keys() == set(range(TRIALS))
    for trial, epochs in trained.items():
        assert fakes.recorded(trial) == list(range(epochs)), trial


def test_the_same_is_decided_whoever_trains_and_whatever_is_killed(plan: Plan) -> None:
    run_search(plan(SPACE, TRIALS), TRIALS, 1, 1, None)
    alone = fakes.result()["rounds"]
    check(alone)
    check_epochs(alone)
    # The newest rounds alone keep checkpoints.
    kept = {path.parts[2] for path in Path("search").glob("rounds/*/*/checkpoints")}
    assert kept == {f"{n:04d}" for n in range(fakes.EPOCHS) if n >= fakes.EPOCHS - 2}
    assert [one.model_dump() for one in read_search(Path("search")).rounds] == alone
    Path("search").rename("alone")
    plan(SPACE, TRIALS).open()
    for delay in (0.1, 0.6):
        with fakes.searcher(0.05, TRIALS):
            training = fakes.wait_for(fakes.trainings)[0]
            assert fakes.wait_for(lambda: read_search(Path("search")).rounds)[0].source is None
            time.sleep(delay)
            fakes.kill(training)
    with fakes.searcher(0.1, TRIALS) as process:
        own = f"-{process.pid}-"
        fakes.wait_for(lambda: any(own in path.name for path in Path("search").glob("lock/*")))
        fakes.stop(process)
    fakes.wait_for(lambda: not fakes.trainings())  # it has told them to end
    run_search(plan(SPACE, TRIALS), TRIALS, 2, 1, None)
    assert fakes.result()["rounds"] == alone
    check_epochs(alone)


def test_a_trial_that_fails_goes_on_from_the_best(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAILS_AT", "2")
    # Rates 0.09, 0.72, 0.59, 0.08: after the first round 1 goes on from 3, and 2 by itself.
    two_large = SPACE.replace("seed: 2", "seed: 3")
    run_search(plan(two_large, TRIALS), TRIALS, 2, 1, None)
    rounds = {(one["round"], one["trial"]): one for one in fakes.result()["rounds"]}
    assert rounds[1, 1]["source"] == 3
    assert rounds[1, 2]["settings"]["optimizer.lr"] > 0.5
    assert rounds[1, 2]["value"] is None
    assert rounds[2, 2]["source"] in (0, 1, 3)
    assert rounds[2, 2]["epochs"] == 3
    assert rounds[2, 2]["value"] is not None
    assert "round 2 failed: 3 launches in a row made no progress" in capsys.readouterr().err
    assert {one["state"] for one in fakes.result()["trials"]} == {"complete"}


def test_a_population_that_fails_whole_says_in_which_folder(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS_AT", "1")
    with pytest.raises(InputError, match=r"^search: all trials have failed; "):
        run_search(plan(SPACE.replace("low: 0.0001", "low: 0.6"), 2), 2, 2, 1, None)


def test_a_lost_value_of_a_round_is_named(plan: Plan) -> None:
    run_search(plan(SPACE, 2), 2, 2, 1, None)
    Path("search/rounds/0000/trial0001/value.json").unlink()
    with pytest.raises(InputError, match=r"0000/trial0001/value\.json: is missing, .* --out"):
        run_search(plan(SPACE, 2), 2, 2, 1, None)
