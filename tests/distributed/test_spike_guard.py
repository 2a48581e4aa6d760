"""The loss-spike guard under every engine: a step that is dropped leaves nothing behind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.records.run_folder import read_run
from bigtrk.reports.runs import spikes
from bigtrk.training import trainer
from bigtrk.training.checkpoint.folder import last_good, resumed_configuration
from bigtrk.training.data.batch import Share
from bigtrk.training.settings import Configuration
from bigtrk.training.trainer import StepResult, StepRunner
from tests.distributed.ranks import Done, Works, message, run_all, run_ranks
from tests.distributed.runs import ENGINES, fit_all, write_events
from tests.distributed.trial import Trial, same, small

DROPPED = ("DDP", "FSDP2", "zero1", "zero3")
BAD = 3  # the training event whose loss is not finite: last in the first epoch, first in the second


def disturbed(trial: Trial, is_last: bool) -> list[bool]:
    """Steps with a loss above the limit, one that is no number, and gradients that are none."""
    found = [trial.step(limit=0.0).spike]
    features, backward = [b.edge_features.clone() for b in trial.batches], trial.engine.backward
    for batch in trial.batches if is_last else []:
        batch.edge_features.fill_(torch.inf)
    found.append(trial.step().spike)
    for batch, known in zip(trial.batches, features, strict=True):
        batch.edge_features.copy_(known)
    if is_last:
        trial.engine.backward = lambda loss: backward(loss * torch.inf)  # type: ignore[method-assign]
    result = trial.step()
    assert torch.isfinite(torch.tensor(result.loss))
    trial.engine.backward = backward  # type: ignore[method-assign]
    return [*found, result.spike]


def dropped(ranks: Ranks) -> dict[str, Any]:
    """Returns, by engine, which steps were spikes, and the weights without and with them."""
    found = {}
    optimizer, is_last = OptimizerSettings(gradient_clipping=0.1), ranks.rank > 0
    for name in DROPPED:
        calm, other = (Trial(ranks, small(name, spike_guard="skip"), optimizer) for _ in range(2))
        for _ in range(2):
            calm.step()
        spiked = [other.step().spike, *disturbed(other, is_last), other.step().spike]
        found[name] = {"spikes": spiked, "calm": calm.weights(), "disturbed": other.weights()}
    return found


class BadRunner(StepRunner):
    """Computes with features that are not finite whenever a step has one of the `bad` events."""

    bad = frozenset({BAD})

    def run(self, events: Sequence[int], shares: Sequence[Share], *others: Any) -> StepResult:
        for batch in (batch for share in shares for batch in share.batches):
            if self.bad & {*events} and batch.edge_features.numel():
                batch.edge_features.fill_(torch.inf)
        return super().run(events, shares, *others)


class WorstRunner(BadRunner):
    """Computes so in every step."""

    bad = frozenset(range(9))


def run_of(folder: Path, name: str, **training: Any) -> Configuration:
    return Configuration.model_validate(
        {
            "data": {"train": [folder / "graphs"], "validation": 1},
            "model": {"hidden": 8, "layers": 2},
            "engine": ENGINES["DDP"],
            "training": {"epochs": 2, "spike_guard": "skip", "norms_every": 0, **training},
            "optimizer": {"lr": 0.01, "warmup_steps": 3},
            "run": {"folder": folder / name},
        }
    )


def bad_runs(ranks: Ranks, *runs: Configuration) -> None:
    with patch.object(trainer, "StepRunner", BadRunner):
        for configuration in runs:
            fit_all(ranks, configuration)


def halted(ranks: Ranks, folder: Path) -> None:
    """Runs one epoch, and resumes it for the second."""
    bad_runs(ranks, run_of(folder, "halted", epochs=1))
    run = folder / "halted"
    with patch.object(trainer, "StepRunner", BadRunner):
        fit_all(ranks, resumed_configuration(run, ["training.epochs=2"]), run)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Has a run that skips steps, and one that was resumed."""
    folder = tmp_path_factory.mktemp("runs")
    write_events(folder)
    works: Works = {
        "dropped": (dropped, ()),
        "runs": (bad_runs, (run_of(folder, "whole"),)),
        "on": (halted, (folder,)),
    }
    return Done({2: run_all(2, works)}, folder)


@pytest.mark.parametrize("engine", DROPPED)
def test_a_dropped_step_leaves_no_trace(done: Done, engine: str) -> None:
    results = [result[engine] for result in done.of[2]["dropped"]]
    for result in results:
        assert result["spikes"] == [False, True, True, True, False]
        assert same(result["calm"], result["disturbed"])
    assert results[0]["calm"], "rank 0 has the weights"


def test_spikes_are_recorded(done: Done) -> None:
    run = read_run(done.folder / "whole")
    assert [step.step for step in run.steps] == list(range(8))
    assert len(spikes(run)) == 2
    assert all(step.loss is None and step.norms for step in spikes(run))
    assert [(epoch.steps, epoch.spikes) for epoch in run.epochs] == [(3, 1), (3, 1)]


def test_a_guarded_run_resumes_bit_for_bit(done: Done) -> None:
    folders = done.folder / "whole", done.folder / "halted"
    assert same(*(load_file(run / "model.safetensors") for run in folders))
    progress = [last_good(run).checkpoint.progress for run in folders]
    assert progress[0] == progress[1]
    assert len(progress[0].history.losses) == 6


def too_bad(ranks: Ranks, configuration: Configuration) -> str | None:
    """Returns the message when every step is a spike."""
    with patch.object(trainer, "StepRunner", WorstRunner):
        return message(lambda: fit_all(ranks, configuration))


def test_spikes_without_end_stop_the_run(tmp_path: Path) -> None:
    write_events(tmp_path)
    [said] = run_ranks(1, too_bad, run_of(tmp_path, "bad", epochs=9))
    assert said.startswith("the loss spiked in 10 steps in a row; lower optimizer.lr")
