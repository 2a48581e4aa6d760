"""`bigtrk plan --choose`: settings that fit a rank's memory, and the commands to run them."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigtrk.errors import InputError
from bigtrk.planning.plan import Question
from bigtrk.shipped import shipped
from bigtrk.training.automatic import MEASURED, Limit, Option, Task, choose
from bigtrk.training.data.event_source import open_events
from bigtrk.training.fitting import GIB


@dataclass(frozen=True)
class Given:
    """The parts of the command line that the printed commands repeat.

    files: the configuration file, if one is named. folders: the events' folders; none if only sizes
    of events are given.
    """

    files: Sequence[Path]
    overrides: Sequence[str]
    folders: Sequence[Path]


@dataclass(frozen=True)
class Trial:
    """A short training with an option. seconds: of a step; peak_bytes: of a rank; both None if it
    failed. failure: its error.
    """

    option: Option
    seconds: float | None
    peak_bytes: float | None
    failure: str = ""

    def fits(self, limit: Limit) -> bool:
        """Whether it succeeded within the limit of memory."""
        return self.peak_bytes is not None and limit.holds(self.peak_bytes)


TryOut = Callable[[Task, Given], list[Trial]]


def make_choice(question: Question, given: Given, try_out: TryOut | None = None) -> dict[str, Any]:
    """Chooses settings; returns the whole answer as JSON types, in bytes and seconds.

    try_out: trains some options for a few steps; the fastest is chosen. Raises InputError if no
    option fits; it names the memory that would do.
    """
    assert question.budget is not None
    task = Task(
        question.configuration,
        question.sizes,
        question.ranks,
        question.ranks_per_node,
        question.machine,
        Limit(question.budget),
        cuttable=True,
    )
    largest = question.largest
    considered, trials = choose(task), try_out(task, given) if try_out else []
    chosen = _fastest(trials, task.limit) if try_out else considered[-1]
    return {
        "machine": question.machine.name,
        "model": question.configuration.model.model_dump(mode="json"),
        "events": {
            "number": len(question.sizes),
            "largest": {"nodes": largest.nodes, "edges": largest.edges},
        },
        "events_per_step": question.configuration.training.events_per_step,
        "ranks": task.world,
        "memory_bytes": task.limit.memory,
        "budget_bytes": task.limit.budget,
        "options": [_row(one) for one in considered],
        "trials": [
            {**_row(one.option), "seconds": one.seconds, "peak": one.peak_bytes} for one in trials
        ],
        "choice": _row(chosen),
        "commands": _commands(chosen, task, given),
    }


def _fastest(trials: Sequence[Trial], limit: Limit) -> Option:
    """Returns the option of the fastest trial that fits; InputError if none does."""
    ended = [(one.seconds, i) for i, one in enumerate(trials) if one.fits(limit)]
    if ended:
        return trials[min(ended)[1]].option
    peaks = [one.peak_bytes for one in trials if one.peak_bytes is not None]
    if not peaks:
        raise InputError(
            f"no choice of settings could be trained ({len(trials)} tried); correct the cause and "
            f"run this command again; the first trial ended with this error: {trials[0].failure}"
        )
    raise InputError(
        f"no option fits into {MEASURED:.0%} of the {limit.memory / GIB:.2f} GiB of memory per "
        f"rank ({len(trials)} tried): the smallest took "
        f"{min(peaks) / GIB:.3f} GiB; raise --memory, add ranks or lower model.hidden"
    )


def _row(one: Option) -> dict[str, Any]:
    return {
        "settings": dict(one.candidate.values),
        "sectors": one.sectors,
        "parts": one.cut.parts,
        "sectors_per_rank": one.cut.most_on_a_rank,
        "memory": one.memory,
        "fits": one.fits,
    }


def _commands(chosen: Option, task: Task, given: Given) -> list[str]:
    """Returns the shell commands that cut whole events, if necessary, and train."""
    sectors = chosen.sectors
    whole = _whole(given) if sectors > 1 else []
    cuts = {folder: folder.with_name(f"{folder.name}-in-{sectors}") for folder in whole}
    train = [*given.folders, *cuts.values()] if given.folders else list(cuts.values())
    cutting = [
        ["python", "-m", "partition", str(folder), str(cut), "--parts", str(sectors)]
        for folder, cut in cuts.items()
    ]
    program = [str(shipped("train.py")), *training_arguments(chosen, task, given, train)]
    return [shlex.join(command) for command in (*cutting, [*_launcher(task), *program])]


def training_arguments(
    chosen: Option, task: Task, given: Given, train: Sequence[Path]
) -> list[str]:
    """Returns the arguments of a training with an option's settings, on the events in `train` or,
    if that is empty, on those configured.
    """
    settled = {"training.memory_gib", *(key for key, _ in chosen.candidate.values)}
    settled |= {"data.train"} if train else set()
    return [
        *map(str, given.files),
        *(one for one in given.overrides if one.partition("=")[0] not in settled),
        *([f"data.train={json.dumps([*map(str, train)])}"] if train else []),
        *chosen.candidate.overrides,
        f"training.memory_gib={task.limit.budget_gib}",
    ]


def _whole(given: Given) -> list[Path]:
    """Lists the folders with whole events; without folders, the placeholder GRAPHS."""
    if not given.folders:
        return [Path("GRAPHS")]
    found = [source.folder.path for source in open_events(given.folders) if source.parts == 1]
    return list(dict.fromkeys(found))


def _launcher(task: Task) -> list[str]:
    """Returns the command that launches the ranks on their hosts."""
    per_host = min(task.world, task.ranks_per_node)
    hosts = -(-task.world // per_host)
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "FIRST_HOST:29500"]
    several = ["--nnodes", str(hosts), *meeting] if hosts > 1 else []
    return ["torchrun", *several, "--nproc-per-node", str(per_host)]
