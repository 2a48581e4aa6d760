"""Searches, with a training that a stand-in writes: pruned, failed, killed and gone on with."""

import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bigtrk.errors import InputError
from bigtrk.records.studies import read_search
from bigtrk.studies.search import search as searching
from bigtrk.studies.search.plan import Search
from bigtrk.studies.search.search import run_search
from tests.studies.search import stand_in_searches as fakes

SPACE = """\
metric: train_loss
space:
  optimizer.lr: {low: 0.0001, high: 1.0}
pruning: {first: 1, factor: 2}
"""
UNPRUNED = SPACE.replace("{first: 1, factor: 2}", "null")
Plan = Callable[..., Search]


def test_a_search_trains_prunes_and_names_the_best(
    plan: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_SECONDS", "0.06")  # time to be pruned in
    run_search(plan(SPACE, 5), 5, 2, 1, None)
    trials = fakes.check_accounts(5)
    values = [trial["value"] for trial in trials if trial["state"] == "complete"]
    assert values == sorted(values)
    assert "pruned" in {trial["state"] for trial in trials}
    out = capsys.readouterr().out
    best = f"trial{trials[0]['number']:04d}"
    verdict = rf"Best: {best} with optimizer\.lr \S+ Training loss: \d"
    assert re.search(verdict, " ".join(out.split())), "the report is printed"
    assert f"{best} ended: train_loss" in out
    assert not re.search(r"epoch \d, train_loss [\d.e-]+\n", out), "only those to be pruned"
    before = {path: path.stat().st_mtime_ns for path in Path("search").glob("trial*/*")}
    run_search(plan(SPACE, 5), 5, 2, 1, None)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    run_search(plan(SPACE, 6), 6, 2, 1, None)
    assert fakes.check_accounts(6)[0]["value"] <= trials[0]["value"]


def test_a_trial_that_comes_no_further_has_failed_and_the_others_go_on(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAILS_AT", "3")
    run_search(plan(UNPRUNED, 4), 4, 1, 1, None)
    for trial in fakes.result()["trials"]:
        failed = trial["settings"]["optimizer.lr"] > 0.5
        assert (trial["state"] == "failed") == failed
        assert fakes.recorded(trial["number"]) == list(range(2 if failed else fakes.EPOCHS))
        if failed:
            assert trial["reason"].endswith("the last: train.py: error: lower optimizer.lr")
            log = Path(f"search/trial{trial['number']:04d}/train.log").read_text()
            # The first one came to its checkpoints.
            assert log.count("lower optimizer.lr") == 4
    states = {trial["state"] for trial in fakes.result()["trials"]}
    assert states == {"complete", "failed"}, "both kinds were drawn"
    assert "failed: 3 launches in a row made no progress" in capsys.readouterr().err


def test_trials_without_their_study_are_no_search(plan: Plan) -> None:
    """Settings drawn anew are not those by which the runs that lie there were trained."""
    run_search(plan(UNPRUNED, 1), 1, 1, 1, None)
    before = fakes.result()
    log = Path("search/study.log")
    begun = log.read_text().splitlines(keepends=True)[0]
    log.unlink()
    for left in (None, "", begun):
        if left is not None:
            log.write_text(left)
        with pytest.raises(InputError, match=r"restore study\.log, or choose another --out"):
            run_search(plan(UNPRUNED, 2), 2, 1, 1, None)
        assert log.exists() == (left is not None), "nothing is in the place of the study"
    assert fakes.result() == before


def test_kills_lose_nothing_and_do_nothing_twice(plan: Plan) -> None:
    """The searcher is killed, its training too or not; another one takes over."""
    plan(UNPRUNED, 4).open()
    rng = random.Random(5)
    for victims in ("searcher", "both", "training"):
        with fakes.searcher(0.15, trials=4) as process:
            (training,) = fakes.wait_for(fakes.trainings)
            time.sleep(rng.uniform(0, 0.4))
            if victims != "searcher":
                fakes.kill(training)
            if victims == "training":
                process.join()
                assert process.exitcode == 0
    fakes.check_accounts(4)


def test_a_search_is_known_while_it_trains_and_a_stopped_one_saves_and_goes_on(plan: Plan) -> None:
    plan(UNPRUNED, 2).open()
    assert read_search(Path("search")).trials == ()
    with fakes.searcher(0.3, trials=2) as process:
        fakes.wait_for(fakes.trainings)
        (first,) = fakes.wait_for(lambda: read_search(Path("search")).trials)
        assert (first.record.state, first.is_training) == ("running", True)
        assert set(first.record.settings) == {"optimizer.lr"}
        known = fakes.wait_for(lambda: (found := read_search(Path("search")).trials)[1:] and found)
        assert [trial.record.state for trial in known] == ["complete", "running"]
        assert known[0].record.value == known[0].epochs[-1].train_loss
        fakes.wait_for(fakes.trainings)
        fakes.stop(process)
    fakes.wait_for(lambda: not fakes.trainings())
    (_, left) = read_search(Path("search")).trials
    assert (left.record.state, left.is_training) == ("running", False)
    assert list(Path("search/trial0001/checkpoints").glob("step-*")), "it has saved"
    run_search(plan(UNPRUNED, 2), 2, 1, 1, None)
    fakes.check_accounts(2)


def test_a_training_that_outlived_its_searcher_is_not_started_again(plan: Plan) -> None:
    plan(UNPRUNED, 1).open()
    with fakes.searcher(0.3, trials=1):
        (training,) = fakes.wait_for(fakes.trainings)
    run_search(plan(UNPRUNED, 1), 1, 1, 1, None)
    fakes.check_accounts(1)
    log = Path("search/trial0000/train.log").read_text().split()
    assert log == ["training", str(training)]


def test_it_needs_optuna(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"optuna is not installed; pip install 'bigtrk\[search\]"):
        run_search(plan(SPACE, 1), 1, 1, 1, None)
