"""The trainings of a search: shares of the host, their launcher, and the runs that it follows."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bigtrk import shipped
from bigtrk.console import complain
from bigtrk.disk.files import open_to_append, unlinked
from bigtrk.disk.folder_lock import HeldError, LockWatch
from bigtrk.errors import InputError, StoppedError, number_of
from bigtrk.launchers import PLACES
from bigtrk.machine import open_cores
from bigtrk.records.run_folder import METRICS, RUN, read_run_record
from bigtrk.studies.launch import (
    LOG,
    launcher_words,
    on_cores,
    tail,
    torchrun_command,
    torchrun_environment,
)
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.run_folder import remove_run
from bigtrk.user_code import code_options

DEVICES = "CUDA_VISIBLE_DEVICES"
MOST_LAUNCHES = 3  # in a row without progress, after which a trial has failed
LOOK = 0.5  # s between two looks at a training


class Place(NamedTuple):
    """A share of the host for one training at a time. words: the command before its arguments.
    first, cores: the training has `cores` cores of this host, from number `first` on.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    first: int
    cores: int


def make_places(at_once: int, ranks: int, launcher: str | None) -> list[Place]:
    """Divides this host's cores and accelerators among `at_once` trainings of `ranks` ranks. A
    `launcher` of the user's finds its own; the default is torchrun, or Python for one rank.
    InputError if the launcher is no command, or there are fewer cores or accelerators than places.
    """
    train = str(shipped.TRAIN)
    if launcher is not None:
        words = [*launcher_words(launcher), train]
        return [Place(words, os.environ, 0, len(os.sched_getaffinity(0)))] * at_once
    words, own = [sys.executable, train], {k: v for k, v in os.environ.items() if k not in PLACES}
    if ranks > 1:  # torchrun gives each rank its place
        words, own = torchrun_command(ranks, shipped.TRAIN, []), torchrun_environment(ranks)
    devices, cores = visible_devices(), open_cores()
    each, cores_each = len(devices) // at_once, cores // at_once
    if not cores_each or (devices and not each):
        there = number_of(len(devices), "accelerator") if devices else number_of(cores, "core")
        raise InputError(
            f"--at-once {at_once}: this host has only {there} for {number_of(at_once, 'trial')} of "
            f"{number_of(ranks, 'rank')} each; lower --at-once"
        )
    places = []
    for i in range(at_once):
        seen = {DEVICES: ",".join(devices[i * each : (i + 1) * each])} if devices else {}
        places.append(Place(words, {**own, **seen}, i * cores_each, cores_each))
    return places


def visible_devices() -> list[str]:
    """Lists this process's accelerators as CUDA_VISIBLE_DEVICES names them."""
    import torch

    named = os.environ.get(DEVICES)
    if named is not None and torch.cuda.is_available():
        return [name for name in named.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


@dataclass
class TrialRun:
    """A training in a run folder, launched if no process trains there yet.

    The folder alone shows how far the training is, and its lock whether a process trains: so a
    training that outlived an earlier searcher is followed, too. arguments: of a new training;
    changes: settings to replace when a training continues; epochs: the last to train, None: its own
    number. to_stop: ask the training to save and end, to prune it. steps: the iterator that follows
    it; between two steps, other trainings have their turn.
    """

    folder: Path
    arguments: Sequence[str]
    place: Place
    changes: Sequence[str] = ()
    epochs: int | None = None
    to_stop: bool = False
    failure: str = ""
    steps: Iterator[None] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        self._watch = LockWatch(self.folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_asked = False
        self._in_vain, self._reached = 0, -2

    def follow(self) -> Iterator[None]:
        """Trains; yields after each look until the training has ended, failed or stopped. Raises
        InputError if the run's record or lock is damaged, or the disk refuses.
        """
        while True:
            # After its launcher was killed, a rank goes on until it has saved.
            if not self._is_launched() and self._watch.lives() is False:
                if self.to_stop or self.has_ended() or self._has_failed():
                    return
                with suppress(HeldError):  # a training of an earlier searcher has come to life
                    self._launch()
            elif self.to_stop and not self.ask_to_stop():
                return
            yield

    def has_ended(self) -> bool:
        """Whether the run has ended by itself, with `epochs` epochs if these are set."""
        record = read_run_record(self.folder) if (self.folder / RUN).exists() else None
        if record is None or record.ended is None:
            return False
        return self.epochs in (None, record.section("training").get("epochs"))

    def _is_launched(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _has_failed(self) -> bool:
        """Whether each of the last launches ended at the step where it began; sets `failure`."""
        self._in_vain = self._in_vain + 1 if self._steps_done() == self._reached else 0
        if self._in_vain < MOST_LAUNCHES:
            return False
        lines = tail(self.folder / LOG) if (self.folder / LOG).exists() else []
        said = [line for line in lines if "error" in line.lower()] or lines or ["it said nothing"]
        last = said[-1].strip()
        self.failure = f"{MOST_LAUNCHES} launches in a row made no progress; the last: {last}"
        return True

    def _steps_done(self) -> int:
        """Returns the steps trained until the newest checkpoint; -1 without a checkpoint."""
        try:
            return last_good(self.folder).checkpoint.progress.step
        except InputError:
            return -1

    def _launch(self) -> None:
        """Starts the training, from its newest checkpoint if there is one."""
        self._reached = self._steps_done()
        arguments = ["--resume", str(self.folder), *self.changes, *code_options()]
        if self._reached < 0:
            if (self.folder / RUN).exists() or (self.folder / METRICS).exists():
                remove_run(self.folder)  # it was killed before its first checkpoint
            arguments = list(self.arguments)
        unlinked(self.folder).mkdir(parents=True, exist_ok=True)
        place = self.place
        # A session of its own: Ctrl-C is for the searcher, which asks the training to save.
        with open_to_append(self.folder / LOG) as output, on_cores(place.cores, place.first):
            self._process = subprocess.Popen(
                [*place.words, *arguments],
                env=place.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ask_to_stop(self) -> bool:
        """Asks the training once to save and end; False if no training is running."""
        owner = self._watch.owner
        if self._is_asked:
            return self._is_launched() or self._watch.lives() is not False
        if owner is not None and owner.has_ended() is False:
            with suppress(ProcessLookupError):
                os.kill(owner.process, signal.SIGTERM)  # one of the ranks, which agree on it
        elif self._process is not None and self._is_launched():
            self._process.terminate()
        else:
            return False
        self._is_asked = True
        return True


def train_all(
    places: Sequence[Place], begin: Callable[[Place], TrialRun | None], asked: Sequence[str]
) -> None:
    """Trains in all places at once. `begin` returns the next training for a free place, or None.
    Raises StoppedError after a signal (`asked` is not empty), once the trainings have saved.
    """
    runs: dict[int, TrialRun] = {}
    try:
        while not asked:
            for number, place in enumerate(places):
                if number not in runs and (run := begin(place)):
                    runs[number] = run
            if not runs:
                return
            ended = [n for n, run in runs.items() if next(run.steps, "ended") == "ended"]
            for number in ended:
                del runs[number]
            time.sleep(LOOK)
    finally:
        left = list(runs.values())
        while left := [run for run in left if run.ask_to_stop()]:
            time.sleep(LOOK)
    raise StoppedError(f"{asked[0]}: the search has stopped; run the same command to continue it")


@contextmanager
def noting_signals() -> Iterator[list[str]]:
    """Yields a list that receives the first signal's name; a second signal ends the process."""
    asked: list[str] = []
    signals = (signal.SIGTERM, signal.SIGINT)  # of clusters; Ctrl-C

    def take(number: int, _: object) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_DFL)
        asked.append(signal.Signals(number).name)
        then = "a second signal stops at once"
        complain(f"{asked[0]}: stopping when all trainings have saved; {then}")

    before = {one: signal.signal(one, take) for one in signals}
    try:
        yield asked
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
