"""A trial of a population goes on from another's checkpoint, at the rate that it is given."""

from pathlib import Path
from typing import Any

import pytest
from torch.optim.optimizer import register_optimizer_step_pre_hook

from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import read_run_record
from bigtrk.records.studies import ValueRecord
from bigtrk.studies.search.population import end_round, take_over
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, settings, steps, train, write_events

GOOD, BAD = 0, 1  # trials
RATE = 0.0125  # of the bad one after the round
DECAY = 0.3


def groups_used(
    ranks: Ranks, configuration: Configuration, run: Path, *overrides: str
) -> list[tuple[float, float]]:
    """Resumes a run; the rate and the weight decay that AdamW had in each step, of each group."""
    used: list[tuple[float, float]] = []

    def note(optimizer: Any, *_: Any) -> None:
        used.extend((group["lr"], group["weight_decay"]) for group in optimizer.param_groups)

    hook = register_optimizer_step_pre_hook(note)
    try:
        train(ranks, configuration, run, *overrides)
    finally:
        hook.remove()
    return used


def test_the_next_step_has_the_others_weights_and_the_given_rate(tmp_path: Path) -> None:
    write_events(tmp_path)
    runs = [tmp_path / "good", tmp_path / "bad"]
    kept, taken = tmp_path / "kept", tmp_path / "taken"
    for trial, (run, rate) in enumerate(zip(runs, (0.01, 0.09), strict=True)):
        chosen = settings(tmp_path, run, 1, ENGINES["FSDP2"]).model_dump()
        chosen["optimizer"]["lr"] = rate
        run_ranks(2, train, Configuration.model_validate(chosen))
        end_round(run, kept / str(trial), ValueRecord(value=rate))
    own = steps(runs[BAD])
    take_over(runs[BAD], kept / str(GOOD), taken)
    assert read_run_record(runs[BAD]).ended is None
    configuration = settings(tmp_path, runs[BAD], 1, ENGINES["FSDP2"])
    changes = (f"optimizer.lr={RATE}", f"optimizer.weight_decay={DECAY}")
    for used in run_ranks(2, groups_used, configuration, runs[BAD], *changes):
        assert used
        assert used == [(pytest.approx(RATE), DECAY)] * len(used)
    run_ranks(2, train, configuration, runs[GOOD])
    # The loss of the first step is that of the weights before it.
    good, bad = steps(runs[GOOD]), steps(runs[BAD])
    assert bad[: len(own)] == own, "what it trained before stays in its record"
    assert bad[len(own)][:2] == good[len(own)][:2]
    assert bad[len(own) + 1][1] != good[len(own) + 1][1]
    # A second one, as after a kill, does not take it back.
    after = steps(runs[BAD])
    take_over(runs[BAD], kept / str(GOOD), taken)
    assert read_run_record(runs[BAD]).ended == "epochs"
    assert steps(runs[BAD]) == after
