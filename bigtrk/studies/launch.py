"""Launches trainings as separate programs; reads a study's command line and opens its folder."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen

from bigtrk.config import overlap, override
from bigtrk.console import complain, ended_by_sigterm, say
from bigtrk.disk.files import disk_errors, open_to_append, unlinked
from bigtrk.errors import InputError
from bigtrk.planning.command import split_arguments
from bigtrk.records.record import FileRecord, read_record, write_record
from bigtrk.records.run_folder import read_run_record
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.run_folder import remove_run
from bigtrk.user_code import code_options

LOG = "train.log"  # in a run folder
_ESCAPED = "backslashreplace"  # what is not UTF-8 in a training's output
_TAIL = 8
_EPOCH = re.compile(r"epoch \d+/\d+ +train loss")
# torchrun's own report of a failed rank begins with this.
_REPORT = re.compile(r"torch[/.]distributed[/.]elastic|^Traceback .*torchrun")


def launcher_words(launcher: str) -> list[str]:
    """Splits a launcher's command line into words; InputError if its program is missing."""
    try:
        words = shlex.split(launcher)
    except ValueError as error:
        raise InputError(f"--launcher {launcher!r}: is no command ({error}); correct it") from None
    if not words or shutil.which(words[0]) is None:
        raise InputError(
            f"--launcher {launcher!r}: no such program; name one that is installed, such as "
            '"srun --ntasks 8 python"'
        )
    return words


def torchrun_command(ranks: int, script: Path, arguments: Sequence[str]) -> list[str]:
    """Returns the command that runs `script` on `ranks` ranks of this host."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*command, f"--nproc-per-node={ranks}", str(script), *arguments]


def torchrun_environment(ranks: int) -> dict[str, str]:
    """Returns an environment with OMP_NUM_THREADS=1 for several ranks, to keep torchrun from
    warning; ranks set their threads themselves. A single rank would then use one core.
    """
    quiet = {"OMP_NUM_THREADS": "1"} if ranks > 1 else {}
    return {**quiet, **os.environ}


@contextmanager
def on_cores(number: int, first: int = 0) -> Iterator[None]:
    """Pins this process, and programs started in the block, to `number` of its cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[first : first + number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def link_or_copy(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def resumable(run: Path) -> bool:
    """Whether a run can be resumed: it has a good checkpoint, and has not ended."""
    try:
        last_good(run)
    except InputError:
        return False
    return read_run_record(run).ended is None


def resumption(run: Path) -> list[str]:
    """Returns the arguments that resume a run; if it cannot be resumed, removes it, returns []."""
    if resumable(run):
        return ["--resume", str(run), *code_options()]
    if run.exists():
        remove_run(run)
    return []


def train_logged(
    command: Sequence[str], log: Path, environment: Mapping[str, str], quiet: bool = False
) -> None:
    """Runs a training, and appends its output to `log`. Ctrl-C and SIGTERM reach the training,
    which may save before this returns. Unless `quiet`, prints its epochs and, if it fails, its last
    lines. Raises InputError if it fails, or if `log` or its folder is a symbolic link.
    """
    unlinked(log.parent).mkdir(parents=True, exist_ok=True)
    with (
        open_to_append(log) as written,
        ended_by_sigterm(),
        Popen(
            command, env=environment, stdout=PIPE, stderr=STDOUT, text=True, errors=_ESCAPED
        ) as training,
    ):
        try:
            for line in training.stdout or ():
                written.write(line)
                written.flush()
                if _EPOCH.match(line) and not quiet:
                    say(f"  {line.strip()}")
        except BaseException:  # torchrun ends its ranks on SIGTERM
            training.terminate()
            raise
    if training.returncode:
        if not quiet:
            show_end(log)
        raise InputError(
            f"{log.parent.name}: the training ended with status {training.returncode}; see {log}"
        )


def show_end(log: Path) -> None:
    """Prints the last lines of a training's log on stderr."""
    for line in tail(log):
        complain(f"  {line}")


def tail(log: Path) -> list[str]:
    """Returns a log's last lines, without torchrun's own report, which does not name the cause."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    end = next((i for i, line in enumerate(lines) if _REPORT.search(line)), len(lines))
    return lines[:end][-_TAIL:]


def split_study(
    command: str, arguments: Sequence[str], default: Path, taken: Mapping[str, str]
) -> tuple[Path, list[str]]:
    """Returns a command line's configuration file and its overrides, the last of them with its data
    folders. taken: settings that the command itself sets, each with the option to use instead.
    Raises InputError if an override sets one of these, or if there are two files.
    """
    path, overrides, folders = split_arguments(arguments, default)
    for given in overrides:
        for key, instead in taken.items():
            if overlap(given.partition("=")[0], key):
                raise InputError(f"{given}: bigtrk {command} sets {key}; {instead}")
    data = [override("data.train", [str(folder) for folder in folders])] if folders else []
    return path, [*overrides, *data]


def open_study(path: Path, record: FileRecord, same: Sequence[str]) -> None:
    """Writes the record of a study; an existing record must agree in the fields `same`. Raises
    InputError if the folder holds another study or other files, or the disk refuses.
    """
    folder, wanted = path.parent, record.model_dump(mode="json")
    with disk_errors():
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            found = read_record(type(record), path).model_dump(mode="json")
            for what in same:
                if found[what] != wanted[what]:
                    raise InputError(
                        f"{folder}: holds another {path.stem} ({what.replace('_', ' ')} "
                        f"{_first_difference(found[what], wanted[what])}); to continue it, give "
                        f"its settings, else choose another --out"
                    )
        elif any(not held.name.startswith(".") for held in folder.iterdir()):
            raise InputError(f"{folder}: holds files, but no {path.name}; choose another --out")
        write_record(path, record)


def _first_difference(old: object, new: object, key: str = "") -> str:
    """Returns the first key in which two configurations differ, with both values, as text."""
    if isinstance(old, dict) and isinstance(new, dict):
        changed = next(k for k in {**old, **new} if old.get(k) != new.get(k))
        return _first_difference(old.get(changed), new.get(changed), f"{key}{changed}.")
    return f"{key[:-1]} was {old}, now {new}".strip()
