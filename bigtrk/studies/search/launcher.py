"""The launcher that a search's trainings are started by."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bigtrk import shipped
from bigtrk.errors import InputError
from bigtrk.studies.launch import torchrun_command, torchrun_environment

# By these a process finds its place among ranks: those of a searcher are not its training's.
_PLACES = ("RANK", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


@dataclass(frozen=True)
class Launcher:
    """The words of a command before a training's arguments; kind: what it starts them by, "python"
    being a plain process; ranks: how many torchrun starts.
    """

    words: tuple[str, ...]
    kind: Literal["python", "torchrun", "other"]
    ranks: int = 1

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Returns the command that trains with these arguments."""
        return [*self.words, *arguments]

    def environment(self) -> dict[str, str]:
        """Returns the environment of a launch."""
        if self.kind == "torchrun":
            return torchrun_environment(self.ranks)
        dropped = _PLACES if self.kind == "python" else ()
        return {name: value for name, value in os.environ.items() if name not in dropped}


def make_launcher(ranks: int, command: str | None) -> Launcher:
    """Returns the launcher for so many ranks of this host: torchrun, or Python alone for one rank;
    or a command of the user's choice.

    Raises:
        InputError: the command is none.
    """
    if command is None and ranks == 1:
        return Launcher((sys.executable, str(shipped.TRAIN)), "python")
    if command is None:
        return Launcher(tuple(torchrun_command(ranks, shipped.TRAIN, [])), "torchrun", ranks)
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--launcher {command}: is no command ({error}); correct it") from None
    if not words:
        raise InputError('--launcher: name a command, such as "srun --ntasks 8 python"')
    if not shutil.which(words[0]):
        raise InputError(f"--launcher {command}: no such program {words[0]}; install or correct it")
    return Launcher((*words, str(shipped.TRAIN)), "other")
