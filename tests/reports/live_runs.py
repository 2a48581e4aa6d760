"""States of runs, as a dashboard is given them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bigtrk.disk.folder_lock import Owner
from bigtrk.records.live import Holder, LiveRun, Status, scalars
from bigtrk.records.run import StallRecord
from tests.reports.run_folders import epoch_record, run_record, step_record

OWNER = Owner("node7", 99, 1, "elsewhere")
STALL = StallRecord(ranks=(1,), text="rank 1 says nothing")
KNOWN: dict[str, Any] = {
    "epoch": 2,
    "epochs": 3,
    "step": 4,
    "steps": 9,
    "newest": dict([*scalars(step_record(3)), *scalars(epoch_record(0))]),
    "edges_per_second": 24_000.0,
    "step_seconds": 0.71,
    "seconds_left": 125.0,
    "idle": 0.5,
}


def training(folder: Path = Path("0001"), **changes: Any) -> LiveRun:
    """A run in its second epoch."""
    holder = Holder(OWNER, True, 0.5)
    run = LiveRun(folder, Status.TRAINING, run_record(), holder, **KNOWN)
    return replace(run, **changes)
