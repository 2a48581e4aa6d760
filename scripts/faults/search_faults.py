"""Finds out what becomes of a search whose searchers, launchers and ranks are killed.

    python scripts/faults/search_faults.py [--trials 16] [--kills 5] [--storage journal] [--seed 0]
        [--output FILE] [--publish]

A search of small trainings on 2 ranks each is started, and started again whenever its searcher has
been killed. At random moments a searcher, a launcher (torchrun) or a rank gets `kill -9`, each kind
of them at least once. `lost`: parameter sets that were to be drawn and have neither a final value
nor were pruned. `twice`: parameter sets in two folders, and epochs recorded twice. They are
read by other code than the search's.
"""

import argparse
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from bigtrk.console import exit_on_bad_input, say
from bigtrk.errors import InputError
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.studies.launch import show_end
from scripts.faults.fault_rounds import run_quietly
from scripts.faults.training_process import MARK, carrying, send
from scripts.results import Results, add_options

VICTIMS = ("searcher", "launcher", "rank")
RANKS, EVENTS, PARTICLES, EPOCHS = 2, 9, 1000, 9
QUIET = 3.0, 30.0  # s between two kills; the search takes some three minutes
IN_TRAINING = 0.7  # the share of kills that wait for a training, so that not all meet its start
LONGEST = 3600.0  # s of the whole search
SPACE = """\
metric: loss
space:
  optimizer.lr: {low: 1.0e-4, high: 1.0e-1, log: true}
  model.hidden: {low: 4, high: 12}
pruning: {first: 1, factor: 2}
"""
# Optuna's names in its files.
JOURNAL_DONE = (1, 2)  # complete, pruned
SQLITE_DONE = ("COMPLETE", "PRUNED")


@dataclass(frozen=True)
class Kill:
    """A kill: its victim, `seconds` after the search began, and the trial that trained then."""

    victim: str
    seconds: float
    trial: str


class SearchProcess:
    """A searcher and all that it started, told by a mark in their environment."""

    def __init__(self, folder: Path, trials: int, storage: str) -> None:
        self._folder, self._mark = folder, f"{MARK}={uuid4().hex}"
        self._command = [
            sys.executable, "-m", "bigtrk", "search", "space.yaml", "graphs",
            "model.layers=4", f"training.epochs={EPOCHS}", "training.checkpoint_every=1",
            "--trials", str(trials), "--ranks", str(RANKS), "--storage", storage,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts a searcher, whose output follows that of the one before."""
        name, _, value = self._mark.partition("=")
        with (self._folder / "searcher.log").open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env={**os.environ, name: value},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def status(self) -> int | None:
        """Returns the exit status of the searcher; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def processes(self, victim: str) -> list[int]:
        """Lists the processes of a kind, of those that live."""
        assert self._process is not None
        every = set(carrying(self._mark))
        ranks = {rank: carrying(self._mark, f"RANK={rank}") for rank in range(RANKS)}
        match victim:
            case "searcher":
                return [self._process.pid] if self.status is None else []
            case "launcher":
                of_ranks = {process for found in ranks.values() for process in found}
                others = every - {self._process.pid} - of_ranks
                return [process for process in sorted(others) if _is_launcher(process)]
            case _:
                # A rank's own process is the first: it may have started others.
                return sorted(min(found) for found in ranks.values() if found)

    def kill_all(self) -> None:
        """Kills what still lives."""
        send(carrying(self._mark), signal.SIGKILL)


def _is_launcher(process: int) -> bool:
    try:
        return b"torch.distributed.run" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def victims(kills: int, rng: random.Random) -> list[str]:
    """Draws who is killed: each kind at least once, if there are as many kills."""
    drawn = [*VICTIMS, *(rng.choice(VICTIMS) for _ in range(max(0, kills - len(VICTIMS))))]
    rng.shuffle(drawn)
    return drawn[:kills]


def search(folder: Path, trials: int, kills: int, storage: str, rng: random.Random) -> list[Kill]:
    """Searches to the end, through all kills; returns these.

    Raises:
        InputError: the search does not end, or ends badly without having been killed.
    """
    left, done = victims(kills, rng), list[Kill]()
    running = SearchProcess(folder, trials, storage)
    start = time.monotonic()
    try:
        running.start()
        due, in_training = start + rng.uniform(*QUIET), rng.random() < IN_TRAINING
        while running.status != 0 or left:
            now = time.monotonic()
            if now - start > LONGEST:
                raise InputError(f"the search has not ended within {LONGEST:.0f} s")
            if running.status == 0:
                raise InputError(f"the search ended before {', '.join(left)} were killed")
            if running.status is not None:
                raise InputError(f"the searcher ended with status {running.status}")
            is_due = left and now >= due and (trials_training(folder) or not in_training)
            found = running.processes(left[0]) if is_due else []
            if found:
                time.sleep(rng.uniform(0, 1))
                done.append(_strike(running, left.pop(0), found, start, folder, rng))
                due = time.monotonic() + rng.uniform(*QUIET)
                in_training = rng.random() < IN_TRAINING
            time.sleep(0.05)
    except InputError:
        show_end(folder / "searcher.log")
        raise
    finally:
        running.kill_all()
    return done


def trials_training(folder: Path) -> list[str]:
    """Lists the trials whose run folders are held."""
    return sorted(path.parent.name for path in folder.glob("search/trial*/lock"))


def _strike(
    running: SearchProcess,
    victim: str,
    found: Sequence[int],
    start: float,
    folder: Path,
    rng: random.Random,
) -> Kill:
    """Kills one of the processes found; a searcher is started again."""
    trial = ", ".join(trials_training(folder))
    send([rng.choice(found)], signal.SIGKILL)
    kill = Kill(victim, time.monotonic() - start, trial)
    say(f"{kill.seconds:.0f} s: kill -9 of a {victim}; {trial or 'no trial'} was training")
    if victim == "searcher":
        while running.status is None:
            time.sleep(0.01)
        running.start()
    return kill


def ended_sets(folder: Path, storage: str) -> list[dict[str, Any]]:
    """Reads the parameter sets that have a final value or were pruned, without Optuna."""
    read = _ended_in_journal if storage == "journal" else _ended_in_sqlite
    return read(folder / "search")


def _ended_in_journal(folder: Path) -> list[dict[str, Any]]:
    """Replays a journal: entry 4 makes a trial, 5 sets a parameter, 6 its state."""
    sets: list[dict[str, Any]] = []
    ended: list[int] = []
    for line in (folder / "study.journal").read_text().splitlines():
        entry = json.loads(line)
        match entry["op_code"]:
            case 4:
                sets.append({})
            case 5:
                sets[entry["trial_id"]][entry["param_name"]] = entry["param_value_internal"]
            case 6 if entry["state"] in JOURNAL_DONE:
                ended.append(entry["trial_id"])
    return [sets[number] for number in sorted(set(ended))]


def _ended_in_sqlite(folder: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(folder / "study.db")) as study:
        rows = study.execute(
            "SELECT t.trial_id, t.state, p.param_name, p.param_value "
            "FROM trials t JOIN trial_params p ON p.trial_id = t.trial_id"
        ).fetchall()
    sets: dict[int, dict[str, Any]] = {}
    for trial, state, name, value in rows:
        if state in SQLITE_DONE:
            sets.setdefault(trial, {})[name] = value
    return list(sets.values())


def trained_sets(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Reads the parameter set of each run folder of the search."""
    found = []
    for path in sorted(folder.glob("search/trial*/run.json")):
        config = json.loads(path.read_text())["config"]
        rate, hidden = config["optimizer"]["lr"], config["model"]["hidden"]
        found.append((path.parent.name, {"optimizer.lr": rate, "model.hidden": hidden}))
    return found


def twice(folder: Path) -> list[str]:
    """Names parameter sets that are in two folders, and epochs that are recorded twice."""
    sets = Counter(json.dumps(values) for _, values in trained_sets(folder))
    found = [f"{values} in {count} folders" for values, count in sets.items() if count > 1]
    for path in sorted(folder.glob("search/trial*/metrics.jsonl")):
        epochs = re.findall(r'^\{"kind": "epoch", "epoch": (\d+)', path.read_text(), re.MULTILINE)
        found += [
            f"epoch {epoch} {count} times in {path.parent.name}"
            for epoch, count in Counter(epochs).items()
            if count > 1
        ]
    return found


def lost(folder: Path, trials: int, storage: str) -> int:
    """Counts the parameter sets of a search of so many that did not come to an end in a folder."""
    trained = {json.dumps(values) for _, values in trained_sets(folder)}
    ended = {json.dumps(_as_trained(values)) for values in ended_sets(folder, storage)}
    return max(0, trials - len(trained & ended))


def _as_trained(values: dict[str, Any]) -> dict[str, Any]:
    """Returns a parameter set as a configuration has it; storages keep all numbers as floats."""
    return {
        "optimizer.lr": values.get("optimizer.lr"),
        "model.hidden": int(values.get("model.hidden", 0)),
    }


def make_data(folder: Path) -> None:
    """Makes events, graphs and the space."""
    simulate_folder(folder / "events", range(EVENTS), PARTICLES, 0, None)
    run_quietly("bigtrk", "build", folder / "events", folder / "graphs")
    (folder / "space.yaml").write_text(SPACE)


def main() -> None:
    """Exits with status 1 if anything is lost or done twice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--storage", choices=("sqlite", "journal"), default="journal")
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("search_faults", arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # what was started is ended
    with tempfile.TemporaryDirectory() as place:
        folder, rng = Path(place), random.Random(arguments.seed)
        make_data(folder)
        start = time.monotonic()
        kills = search(folder, arguments.trials, arguments.kills, arguments.storage, rng)
        seconds = time.monotonic() - start
        missing = lost(folder, arguments.trials, arguments.storage)
        again = twice(folder)
        ended = json.loads((folder / "search" / "result.json").read_text())["trials"]
    for what in again:
        say(what)
    summary = {
        "trials": arguments.trials, "kills": len(kills), "lost": missing, "twice": len(again)
    }  # fmt: skip
    results.write(
        summary,
        storage=arguments.storage,
        seconds=seconds,
        kills=[asdict(kill) for kill in kills],
        trials=ended,
    )
    raise SystemExit(bool(missing or again))


if __name__ == "__main__":
    exit_on_bad_input("search_faults.py", main)
