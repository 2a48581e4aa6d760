"""Ranks that torchrun restarts go on with the run that it began."""

import shutil
from pathlib import Path

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # not in __all__

from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import read_run, read_run_record
from bigtrk.training.data.event_source import Events, split_validation
from bigtrk.training.run import after_restart
from bigtrk.training.settings import RunSettings
from tests.distributed.runs import fit, settings, write_events
from tests.programs import run_shell

RUN = Path("runs/0001")
# Ends rank 1 at the first step, before there is a checkpoint, and after a restart in epoch 3.
DYING = """
import os, signal
from bigtrk.program import main
from bigtrk.training.trainer import Trainer

last = {"0": 0, "1": 4}.get(os.environ["TORCHELASTIC_RESTART_COUNT"])
step = Trainer._train_step

def dying(self, *given):
    record = step(self, *given)
    if self.step == last and self.ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return record

Trainer._train_step = dying
main()
"""


def test_the_run_of_this_torchrun_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_events(tmp_path)
    monkeypatch.chdir(tmp_path)
    agent = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": agent.host,
        "MASTER_PORT": str(agent.port),
    }.items():
        monkeypatch.setenv(name, value)
    given = settings(tmp_path, RUN, 1, {"name": "ddp"}).model_copy(update={"run": RunSettings()})
    ranks = Ranks(0, 1, 0, 1, "torchrun")
    with process_group(ranks):
        assert after_restart(given) == (given, None), "no run was begun"
        fit(given, ranks, Events(*split_validation(given.data.train, 1)), None)
        assert after_restart(given) == (given, RUN)
        shutil.rmtree(RUN / "checkpoints")
        again, resumed = after_restart(given)
        assert (again.run.folder, resumed) == (RUN, None)
        fit(again, ranks, Events(*split_validation(given.data.train, 1)), resumed)
    assert [path.name for path in RUN.parent.iterdir()] == [RUN.name]
    assert len(read_run(RUN).epochs) == 1


@pytest.mark.slow
def test_torchrun_restarts_a_killed_rank(tmp_path: Path) -> None:
    write_events(tmp_path)
    (tmp_path / "dying.py").write_text(DYING)
    said = run_shell(
        "torchrun --standalone --max-restarts 2 --nproc-per-node 2 dying.py data.train=[graphs] "
        "model.hidden=8 model.layers=2 training.events_per_step=2 training.epochs=4",
        tmp_path,
    )
    assert f"{RUN}: torchrun has restarted its ranks; the run has no checkpoint yet" in said
    assert f"{RUN}: torchrun has restarted its ranks; the run goes on" in said
    run = tmp_path / RUN
    assert [path.name for path in run.parent.iterdir()] == [RUN.name]
    assert read_run_record(run).resumed[0].step in (2, 4)
    assert [step.step for step in read_run(run).steps] == list(range(8))
