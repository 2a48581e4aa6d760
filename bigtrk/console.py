"""What a person sees: progress on a terminal, plain lines elsewhere, errors in one line."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from bigtrk.errors import InputError, RankError, StoppedError

TRY_AGAIN = os.EX_TEMPFAIL  # 75
console = Console()
# Progress goes to stderr, so that `--json` output can be piped.
_progress = Console(stderr=True)
_warned: set[str] = set()
Item = TypeVar("Item")


def say(text: str, style: str | None = None) -> None:
    """Print a line as it is: paths and settings may hold what rich takes for markup."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def warn_once(topic: str, text: str) -> None:
    """Print the first warning of a topic on stderr; the first rank of a host speaks for all."""
    first = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or "0"
    if first == "0" and topic not in _warned:
        _warned.add(topic)
        print(f"bigtrk: warning: {text}", file=sys.stderr, flush=True)


def follow(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield `items` under a progress bar; elsewhere than on a terminal about ten plain lines."""
    if _progress.is_terminal:
        yield from track(items, description=what, total=total, console=_progress)
        return
    stride = max(1, total // 10)
    for done, item in enumerate(items, start=1):
        yield item
        if done % stride == 0 or done == total:
            print(f"{what}: {done}/{total}", file=sys.stderr, flush=True)


def exit_on_bad_input(program: str, run: Callable[[], Any], rank: int = 0) -> Any:
    """Call `run`; bad input ends in one line on stderr and status 2, a run that was asked to stop
    in one line and status 75.

    Rank 0 speaks for all that they agree on, any rank for what it met alone.
    """
    try:
        return run()
    except StoppedError as stopped:
        if rank == 0:
            print(f"{program}: {stopped}", file=sys.stderr)
        raise SystemExit(TRY_AGAIN) from None
    except (InputError, OSError) as error:
        # An OSError names its file: a folder that is a file, no permission, a full disk.
        if rank == 0 or not isinstance(error, InputError) or isinstance(error, RankError):
            alone = f"rank {rank}: " if rank and isinstance(error, OSError) else ""
            print(f"{program}: error: {alone}{error}", file=sys.stderr)
        raise SystemExit(2) from None
