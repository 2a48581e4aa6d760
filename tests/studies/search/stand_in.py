"""Stands for bigtrk/train.py in tests of searches: it writes a run's records in no time.

    python stand_in.py CONFIG.yaml key.sub=value... | --resume RUN [key.sub=value...]

The training loss of epoch e, from 1, with learning rate r is r + 1 / e. Checkpoints are copies of
those in the folder that TEMPLATE names; it prints its process. SIGTERM ends it after an epoch, with
status 75. With FAILS_AT it fails in that epoch of trials whose learning rate is above 0.5.
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bigtrk.disk import folder_lock
from bigtrk.disk.folder_lock import FolderLock

SECONDS = float(os.environ.get("STAND_IN_SECONDS", "0.02"))  # of an epoch
TEMPLATE = Path(os.environ["TEMPLATE"])
asked: list[int] = []
# Seconds of silence after which the owner of a lock is taken for dead.
folder_lock.DEAD = float(os.environ.get("STAND_IN_DEAD", folder_lock.DEAD))
folder_lock.WATCHED = min(folder_lock.WATCHED, folder_lock.DEAD)


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    resumed = arguments[0] == "--resume"
    given = dict(item.split("=", 1) for item in arguments if "=" in item)
    run = Path(arguments[1] if resumed else given["run.folder"])
    run.mkdir(parents=True, exist_ok=True)
    with FolderLock() as lock:
        lock.take(run)
        print("training", os.getpid(), flush=True)
        record: dict[str, Any] = {
            "format": 1,
            "world_size": 1,
            "engine": "ddp",
            "config": {},
            "resumed": [],
        }
        if resumed:
            record = json.loads((run / "run.json").read_text())
            record["resumed"].append({"step": epochs_done(run)})
        else:
            assert not (run / "metrics.jsonl").exists(), "it holds a run"
        for key in ("optimizer.lr", "training.epochs"):
            section, name = key.split(".")
            if key in given:
                record["config"].setdefault(section, {})[name] = json.loads(given[key])
        return train(run, {**record, "ended": None})


def train(run: Path, record: dict[str, Any]) -> int:
    write(run / "run.json", json.dumps(record))
    rate, done = record["config"]["optimizer"]["lr"], epochs_done(run)
    keep_before(run, done)
    for epoch in range(done, record["config"]["training"]["epochs"]):
        time.sleep(SECONDS)
        if rate > 0.5 and epoch + 1 == int(os.environ.get("FAILS_AT", "0")):
            print("train.py: error: lower optimizer.lr", flush=True)
            return 2
        with (run / "metrics.jsonl").open("a") as lines:
            lines.write(json.dumps(line(epoch, rate)) + "\n")
        save(run, epoch + 1)
        if asked:
            return 75
    write(run / "run.json", json.dumps({**record, "ended": "epochs"}))
    return 0


def line(epoch: int, rate: float) -> dict[str, Any]:
    return {
        "kind": "epoch", "epoch": epoch, "steps": 1, "events": 1, "edges": 1, "lr": rate,
        "train_loss": rate + 1 / (epoch + 1), "seconds": 1.0, "edges_per_second": 1.0,
        "peak_memory_bytes": 1,
    }  # fmt: skip


def epochs_done(run: Path) -> int:
    steps = [int(path.name[5:]) for path in (run / "checkpoints").glob("step-*")]
    return max(steps, default=0)


def keep_before(run: Path, done: int) -> None:
    """Drops the records of epochs that are trained again, as a resumed run does."""
    path = run / "metrics.jsonl"
    if path.exists():
        kept = [row for row in path.read_text().splitlines() if json.loads(row)["epoch"] < done]
        write(path, "".join(f"{row}\n" for row in kept))


def save(run: Path, epochs: int) -> None:
    name = f"step-{epochs:08d}"
    (run / "checkpoints").mkdir(exist_ok=True)
    half = run / "checkpoints" / f".{name}.tmp"
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(TEMPLATE / "checkpoints" / name, half)
    half.rename(half.with_name(name))


def write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
