"""The loss-spike guard under every engine: a step that is dropped leaves nothing behind."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.parallel.world import make_world
from bigtrk.reports import read_run
from bigtrk.reports.runs import spikes
from bigtrk.training import trainer
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.checkpoint.resume import resumed_configuration
from bigtrk.training.data.batch import BatchMaker, Loader, Share
from bigtrk.training.data.event_source import Events, split_validation
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from bigtrk.training.step import StepResult, StepRunner
from bigtrk.training.steps.routers import scoring_router
from tests.distributed.graphs import sources
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, fit, write_events

# Whose whole runs are rolled back, with their own ways to write and read a checkpoint.
ROLLED_BACK = ("DDP", "FSDP2", "zero3")
EVENTS = range(len(sources()))
BAD = 3  # the training event whose loss is not finite: last in the first epoch, first in the second


def settings(engine: str, **sections: dict[str, Any]) -> Configuration:
    return Configuration.model_validate(
        {"model": {"hidden": 8, "layers": 2}, "engine": ENGINES[engine], **sections}
    )


class Trial:
    """An engine and the steps it takes over five events in several micro-steps."""

    def __init__(self, ranks: Ranks, configuration: Configuration) -> None:
        events = sources()
        router = scoring_router(events, ranks.world_size)
        world = make_world(ranks, router.num_ranks)
        maker = BatchMaker(configuration, world)
        model, optimizer = build_model(configuration), OptimizerSettings(gradient_clipping=0.1)
        self.engine, _ = make_engine(configuration.engine, model, optimizer, world.stopwatch)
        self._shares = Loader(maker.of(events), world).load(router.route(EVENTS))
        self._batches = [batch for share in self._shares for batch in share.batches]
        self._runner = StepRunner(self.engine, configuration.training, world)
        self._is_last = ranks.rank == ranks.world_size - 1

    def step(self) -> StepResult:
        return self._runner.run(EVENTS, self._shares, lr=0.01)

    def spikes(self) -> list[bool]:
        """Steps with a loss above the limit, one that is no number, and gradients that are none."""
        found = [self._runner.run(EVENTS, self._shares, 0.01, limit=0.0).spike]
        features, backward = [b.edge_features.clone() for b in self._batches], self.engine.backward
        for batch in self._batches if self._is_last else []:
            batch.edge_features.fill_(torch.inf)
        found.append(self.step().spike)
        for batch, known in zip(self._batches, features, strict=True):
            batch.edge_features.copy_(known)
        if self._is_last:
            self.engine.backward = lambda loss: backward(loss * torch.inf)  # type: ignore[method-assign]
        result = self.step()
        assert torch.isfinite(torch.tensor(result.loss))
        self.engine.backward = backward  # type: ignore[method-assign]
        return [*found, result.spike]


def dropped(ranks: Ranks) -> dict[str, Any]:
    """Returns, by engine, which steps were spikes, and the weights without and with them."""
    found = {}
    for name in ENGINES:
        configuration = settings(name, training={"spike_guard": "skip"})
        calm, disturbed = Trial(ranks, configuration), Trial(ranks, configuration)
        for _ in range(2):
            calm.step()
        before = disturbed.step().spike
        caught = disturbed.spikes()
        after = disturbed.step().spike
        found[name] = {
            "spikes": [before, *caught, after],
            "calm": _weights(calm),
            "disturbed": _weights(disturbed),
        }
    return found


def _weights(trial: Trial) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trial.engine.weights().items()}


class BadRunner(StepRunner):
    """Computes with features that are not finite whenever a step has the event `BAD`."""

    def run(self, events: Sequence[int], shares: Sequence[Share], *others: Any) -> StepResult:
        for batch in (batch for share in shares for batch in share.batches):
            if BAD in events and batch.edge_features.numel():
                batch.edge_features.fill_(torch.inf)
        return super().run(events, shares, *others)


def run_of(
    graphs: Path,
    run: Path,
    engine: str,
    guard: str,
    epochs: int,
    every: int | None = None,
    events_per_step: int = 1,
) -> Configuration:
    return settings(
        engine,
        data={"train": [graphs], "validation": 1},
        training={
            "epochs": epochs,
            "events_per_step": events_per_step,
            "spike_guard": guard,
            "norms_every": 0,
            "checkpoint_every": every,
        },
        optimizer={"lr": 0.01, "warmup_steps": 3},
        run={"folder": run},
    )


def fitted(ranks: Ranks, configuration: Configuration, resume: Path | None = None) -> None:
    events = Events(*split_validation(configuration.data.train, 1))
    fit(configuration, ranks, events, resume)


def whole_runs(ranks: Ranks, graphs: Path, folder: Path) -> None:
    """Runs of two epochs that skip and that roll back, and one that is resumed after the first."""
    setattr(trainer, "StepRunner", BadRunner)  # noqa: B010  # mypy: it is imported there
    for engine in ROLLED_BACK:
        for guard in ("skip", "roll_back"):
            fitted(ranks, run_of(graphs, folder / f"{engine}-{guard}", engine, guard, epochs=2))
    fitted(ranks, run_of(graphs, folder / "often", "DDP", "roll_back", epochs=2, every=1))
    halted = folder / "halted"
    fitted(ranks, run_of(graphs, halted, "DDP", "skip", epochs=1))
    fitted(ranks, resumed_configuration(halted, ["training.epochs=2"]), halted)


def work(ranks: Ranks, graphs: Path, folder: Path) -> dict[str, Any]:
    found = dropped(ranks)
    whole_runs(ranks, graphs, folder)
    return found


# Starting processes costs more than all they do here.
@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Path]:
    folder = tmp_path_factory.mktemp("runs")
    write_events(folder)
    return run_ranks(2, work, folder / "graphs", folder), folder


@pytest.mark.parametrize("engine", ENGINES)
def test_a_dropped_step_leaves_no_trace(
    done: tuple[list[dict[str, Any]], Path], engine: str
) -> None:
    for result in done[0]:
        assert result[engine]["spikes"] == [False, True, True, True, False]
        calm, disturbed = result[engine]["calm"], result[engine]["disturbed"]
        assert calm.keys() == disturbed.keys()
        assert all(torch.equal(calm[name], disturbed[name]) for name in calm)
    assert done[0][0][engine]["calm"], "rank 0 has the weights"


@pytest.mark.parametrize("engine", ROLLED_BACK)
def test_rolling_back_trains_what_skipping_trains(
    done: tuple[list[dict[str, Any]], Path], engine: str
) -> None:
    skipped, rolled_back = (done[1] / f"{engine}-{guard}" for guard in ("skip", "roll_back"))
    weights, others = (load_file(run / "model.safetensors") for run in (skipped, rolled_back))
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    runs = [read_run(run) for run in (skipped, rolled_back)]
    for run in runs:
        assert [step.step for step in run.steps] == list(range(8))
        assert len(spikes(run)) == 2
        assert all(step.loss is None and step.norms for step in spikes(run))
        assert [(epoch.steps, epoch.spikes) for epoch in run.epochs] == [(3, 1), (3, 1)]
    assert [s.loss for s in runs[0].steps] == [s.loss for s in runs[1].steps]
    # Once for each spike, all steps before it were trained again.
    lines = [json.loads(line) for line in (rolled_back / "metrics.jsonl").read_text().splitlines()]
    spiked = [step.step % 4 for step in spikes(runs[1])]
    assert sum(line["kind"] == "step" for line in lines) == 8 + sum(spiked)


def first_step_repeated(ranks: Ranks, graphs: Path, folder: Path) -> None:
    """Train an epoch that skips its second step of three, and one that rolls it back; all ranks
    have gradients in each.
    """
    setattr(trainer, "StepRunner", BadRunner)  # noqa: B010  # mypy: it is imported there
    for guard in ("skip", "roll_back"):
        fitted(ranks, run_of(graphs, folder / guard, "DDP", guard, epochs=1, events_per_step=4))


def test_rolling_back_repeats_the_first_step_of_a_process(tmp_path: Path) -> None:
    write_events(tmp_path, 13)
    # A sum of three numbers depends on their order.
    run_ranks(3, first_step_repeated, tmp_path / "graphs", tmp_path)
    runs = [read_run(tmp_path / guard) for guard in ("skip", "roll_back")]
    assert [[step.step for step in spikes(run)] for run in runs] == [[1], [1]]
    weights, others = (
        load_file(tmp_path / guard / "model.safetensors") for guard in ("skip", "roll_back")
    )
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_a_guarded_run_resumes_bit_for_bit(done: tuple[list[dict[str, Any]], Path]) -> None:
    whole, halted = done[1] / "DDP-skip", done[1] / "halted"
    weights, resumed = (load_file(run / "model.safetensors") for run in (whole, halted))
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)
    progress = [last_good(run).checkpoint.progress for run in (whole, halted)]
    assert progress[0] == progress[1]
    assert len(progress[0].history.losses) == 6


def test_a_checkpoint_after_each_step_leaves_nothing_to_train_again(
    done: tuple[list[dict[str, Any]], Path],
) -> None:
    skipped, often = done[1] / "DDP-skip", done[1] / "often"
    weights, others = (load_file(run / "model.safetensors") for run in (skipped, often))
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    runs = [read_run(run) for run in (skipped, often)]
    assert [epoch.train_loss for epoch in runs[0].epochs] == [e.train_loss for e in runs[1].epochs]
    assert [(epoch.steps, epoch.spikes) for epoch in runs[1].epochs] == [(3, 1), (3, 1)]
    lines = [json.loads(line) for line in (often / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "step"] == list(range(8))


def too_bad(ranks: Ranks, graphs: Path, folder: Path) -> list[str]:
    """Returns what is said when every step is a spike."""
    found = []

    class Worst(StepRunner):
        def run(self, events: Sequence[int], shares: Sequence[Share], *others: Any) -> StepResult:
            for batch in (batch for share in shares for batch in share.batches):
                batch.edge_features.fill_(torch.inf)
            return super().run(events, shares, *others)

    setattr(trainer, "StepRunner", Worst)  # noqa: B010  # mypy: it is imported there
    for guard in ("skip", "roll_back"):
        with pytest.raises(InputError) as caught:
            fitted(ranks, run_of(graphs, folder / guard, "DDP", guard, epochs=9))
        found.append(str(caught.value))
    return found


def test_spikes_without_end_stop_the_run(
    done: tuple[list[dict[str, Any]], Path], tmp_path: Path
) -> None:
    for skipped, rolled_back in run_ranks(1, too_bad, done[1] / "graphs", tmp_path):
        assert skipped.startswith("10 loss spikes are too many: lower optimizer.lr")
        assert rolled_back.startswith("4 loss spikes are too many"), "all of the epoch"
