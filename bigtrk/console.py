"""Output for people: progress on a terminal, plain lines elsewhere, errors in one line.

Texts may come from anywhere, so neither rich's markup nor escape codes in them are obeyed.
"""

import json
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import track
from rich.segment import Segment

from bigtrk.errors import (
    InputError,
    RankError,
    StoppedError,
    disk_reason,
    printable,
    printable_lines,
)
from bigtrk.launchers import LOCAL_RANKS, find_place

if TYPE_CHECKING:
    import typer

MOST_LINES = 10  # lines of progress of a command in a log, at most
TRY_AGAIN = os.EX_TEMPFAIL  # 75
INTERRUPTED, ENDED = 128 + signal.SIGINT, 128 + signal.SIGTERM
_warned: set[str] = set()
_VARIABLE = re.compile(r"\$(\w+|\{\w+\})", re.ASCII)
Item = TypeVar("Item")


class Screen(Console):
    """A console that ignores markup in texts and escapes their unprintable characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable_lines(segment.text)
            yield segment._replace(text=text)


console = Screen()
# Progress goes to stderr, so that `--json` output can be piped.
_progress = Screen(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Prints a text as one line, unprintable characters escaped."""
    console.print(printable(text), style=style, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Writes a time for people: "12 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def print_result(content: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Prints a command's result: `content` as JSON (a text unchanged), or else by `show`."""
    if as_json:
        print(content if isinstance(content, str) else json.dumps(content, indent=1))
    else:
        show()


def complain(text: str) -> None:
    """Prints a text as one line on stderr."""
    print(printable(text), file=sys.stderr, flush=True)


def warn_once(topic: str, text: str) -> None:
    """Prints a warning on stderr, once per topic, on the first rank of each host."""
    local_rank = next((os.environ[name] for name in LOCAL_RANKS if os.environ.get(name)), "0")
    if local_rank == "0" and topic not in _warned:
        _warned.add(topic)
        complain(f"bigtrk: warning: {text}")


def follow(items: Iterable[Item], total: int, what: str, lines: int = MOST_LINES) -> Iterator[Item]:
    """Yields `items` under a progress bar; without a terminal prints at most `lines` lines."""
    if _progress.is_terminal:
        yield from track(items, description=what, total=total, console=_progress)
        return
    stride = -(-total // lines) if lines else total + 1
    for done, item in enumerate(items, start=1):
        yield item
        if done % stride == 0 or (lines and done == total):
            complain(f"{what}: {done}/{total}")


def exit_on_bad_input(program: str, run: Callable[[], Any], rank: int = 0) -> Any:
    """Returns the result of `run`. Errors end in one line on stderr: bad input with status 2, a run
    that was asked to stop with 75, Ctrl-C with 130. Rank 0 prints an error that all ranks share; a
    rank that alone has an error prints it itself.
    """
    sys.excepthook = _show_defect
    if isinstance(sys.stdout, TextIOWrapper):  # the encoding may lack a character
        sys.stdout.reconfigure(errors="replace")
    try:
        result = run()
        sys.stdout.flush()  # so that a write error is caught here
        return result
    except (StoppedError, KeyboardInterrupt) as end:
        stopped = isinstance(end, StoppedError)
        if rank == 0:
            complain(f"{program}: {end if stopped else 'interrupted'}")
        exec("")  # else Python ends by the signal if that came in an `exec`, as of a dataclass
        raise SystemExit(TRY_AGAIN if stopped else INTERRUPTED) from None
    except (InputError, OSError) as error:
        of_disk = isinstance(error, OSError)
        said = disk_reason(error) if isinstance(error, OSError) else str(error)
        if rank == 0 or of_disk or isinstance(error, RankError):
            complain(f"{program}: error: {f'rank {rank}: ' if rank and of_disk else ''}{said}")
        raise SystemExit(2) from None


@contextmanager
def ended_by_sigterm(program: str = "bigtrk") -> Iterator[None]:
    """Makes SIGTERM end the block with a line and SystemExit, so that programs it started end, too.
    This works in the main thread of a single rank: a rank that waits takes no signal.
    """

    def end(*_: object) -> None:
        complain(f"{program}: ended by SIGTERM")
        sys.exit(ENDED)

    before = signal.getsignal(signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    with suppress(InputError):
        if is_main and find_place().world_size == 1:
            signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:  # else a training has set what follows
            signal.signal(signal.SIGTERM, before)


def run_commands(program: str, app: "typer.Typer", arguments: Sequence[str] | None = None) -> None:
    """Runs the command of `app` that `arguments` (by default the process's own) name, and exits."""
    # Imported here, since it takes time that other programs need not spend.
    import typer
    from typer.main import get_command

    usage_error: type[Any] = typer.BadParameter.__bases__[0]
    _expand_paths(app)

    def run() -> Any:
        # Without a name the help shows what was typed, such as `python -m partition`.
        name = None if arguments is None else program
        try:
            with ended_by_sigterm(program):
                status = get_command(app)(arguments, name, standalone_mode=False)
        except usage_error as error:
            if said := error.format_message():  # nothing, where the help was shown instead
                asked = error.ctx.command_path if error.ctx else program
                raise InputError(f"{' '.join(said.split())} ({asked} --help tells more)") from None
            raise SystemExit(2) from None
        if status == INTERRUPTED:  # typer makes this of Ctrl-C
            raise KeyboardInterrupt
        return status

    raise SystemExit(exit_on_bad_input(program, run))


def given_path(text: str | Path) -> Path:
    """Returns the path that a user wrote, with its `~` and its variables replaced. InputError if
    there is no such variable or user, unless a file or folder has exactly the written name.
    """
    written = str(text)
    at_home = os.path.expanduser(written)  # noqa: PTH111  # Path would read ./~ as ~
    # An empty variable counts as unset: $EMPTY/run would lie in the root folder.
    found = [name for name in _VARIABLE.findall(written) if not os.environ.get(name.strip("{}"))]
    unknown = [f"the variable ${name} is unset or empty; set it" for name in found]
    if at_home.startswith("~"):
        unknown.append(f"there is no home folder {written.partition('/')[0]}; correct it")
    if unknown and not os.path.lexists(written):
        raise InputError(f"{written}: {unknown[0]}, or write the path in full")
    return Path(os.path.expandvars(at_home))


def _expand_paths(app: "typer.Typer") -> None:
    """Makes all commands expand their paths by `given_path`."""
    for command in app.registered_commands:
        # A program may be run several times in one process.
        if command.callback and not hasattr(command.callback, "__wrapped__"):
            command.callback = wraps(command.callback)(partial(_call, command.callback))
    for group in app.registered_groups:
        if group.typer_instance:
            _expand_paths(group.typer_instance)


def _call(command: Callable[..., Any], **values: Any) -> Any:
    def given(value: Any) -> Any:
        if isinstance(value, list):
            return [given(one) for one in value]
        return given_path(value) if isinstance(value, Path) else value

    return command(**{name: given(value) for name, value in values.items()})


def _show_defect(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Prints the traceback of a defect, escaped, since messages may quote any input."""
    text = "".join(traceback.format_exception(kind, error, trace))
    print(printable_lines(text), file=sys.stderr, end="")
