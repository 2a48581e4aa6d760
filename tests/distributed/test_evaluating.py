"""Runs evaluated before they end, from a checkpoint of any engine, and evaluated again."""

import shutil
from pathlib import Path

import pytest

from bigtrk.errors import InputError
from bigtrk.parallel.process_group import process_group
from bigtrk.records.evaluation import EVALUATIONS, EvaluationRecord
from bigtrk.records.run_folder import read_run
from bigtrk.training.checkpoint.manifest import shard_name
from bigtrk.training.run_folder import AVERAGED, CHECKPOINTS, DESCRIPTION, WEIGHTS
from tests.distributed.ranks import ALONE, run_ranks
from tests.distributed.runs import evaluated, settings, train
from tests.present import present

NEWEST = "step-00000002"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, graphs: Path) -> Path:
    """A run of one epoch whose checkpoint two ranks wrote, each its own shards."""
    run = tmp_path_factory.mktemp("trained") / "run"
    made = settings(graphs, run, 1, {"name": "fsdp2"})
    averaging = made.training.model_copy(update={"average_decay": 0.5})
    run_ranks(2, train, made.model_copy(update={"training": averaging}))
    return run


@pytest.fixture
def run(tmp_path: Path, trained: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run")


def interrupted(run: Path) -> Path:
    """The run as it was before its model was written."""
    (run / WEIGHTS).unlink()
    (run / DESCRIPTION).unlink()
    return run


def evaluated_here(run: Path, data: Path) -> EvaluationRecord:
    with process_group(ALONE):
        return evaluated(ALONE, run, data)


def figures(record: EvaluationRecord) -> object:
    return record.model_dump(exclude={"made"})


def test_a_checkpoint_scores_as_the_model_it_became(
    run: Path, graphs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = graphs / "graphs"
    ended = evaluated_here(run, data)
    assert (ended.step, ended.events, ended.events_left_out) == (2, 1, 4)
    interrupted(run)
    capfd.readouterr()
    alone = evaluated_here(run, data)
    told, _, written = capfd.readouterr().err.splitlines()
    assert told == (
        f"{run}: has not ended; evaluating its checkpoint {NEWEST}, written by FSDP2 on 2 ranks"
    )
    assert written.startswith(f"evaluation in {run / EVALUATIONS}/graphs-")
    assert figures(alone) == figures(ended)
    two = run_ranks(2, evaluated, run, data)
    assert two[0] == two[1]
    assert figures(two[0]) == figures(ended)
    assert len(list((run / EVALUATIONS).iterdir())) == 3


def test_averaged_weights_score_as_they_were_validated(run: Path, graphs: Path) -> None:
    (epoch,) = read_run(run).epochs
    plain = evaluated_here(run, graphs / "graphs").edge_metrics
    (run / AVERAGED).replace(run / WEIGHTS)
    averaged = evaluated_here(run, graphs / "graphs").edge_metrics
    of_average = present(epoch.average).validation
    for recorded, found in ((epoch.validation, plain), (of_average, averaged)):
        expected = found.model_dump(exclude={"cuts"})
        assert present(recorded).model_dump(exclude={"cuts"}) == pytest.approx(expected, rel=1e-5)
    assert averaged.loss != plain.loss


def test_a_damaged_checkpoint_is_named_and_left_where_it_is(
    run: Path, graphs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoints = interrupted(run) / CHECKPOINTS
    shutil.copytree(checkpoints / NEWEST, checkpoints / "step-00000009")
    assert evaluated_here(run, graphs / "graphs").step == 2
    damage = f"step-00000009 is damaged: manifest.json describes another checkpoint, {NEWEST}"
    assert damage in capfd.readouterr().err
    assert (checkpoints / "step-00000009").is_dir()
    (checkpoints / NEWEST / shard_name(1)).write_bytes(b"")
    with pytest.raises(InputError, match=r"checkpoints are damaged .*shard-00001.* has 0 bytes"):
        evaluated_here(run, graphs / "graphs")
