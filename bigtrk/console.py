"""What a person sees: progress on a terminal, plain lines elsewhere, errors in one line."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from bigtrk.errors import InputError

console = Console()
# Progress goes to stderr, so that `--json` output can be piped.
_progress = Console(stderr=True)
Item = TypeVar("Item")


def say(text: str, style: str | None = None) -> None:
    """Print a line as it is: paths and settings may hold what rich takes for markup."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


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


def exit_on_bad_input(program: str, run: Callable[[], Any], speaks: bool = True) -> Any:
    """Call `run`; bad input ends in one line on stderr (if this rank `speaks`) and status 2."""
    try:
        return run()
    except (InputError, OSError) as error:
        # An OSError names its file: a folder that is a file, no permission, a full disk.
        if speaks:
            print(f"{program}: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
