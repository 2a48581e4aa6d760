"""What a person sees: progress on a terminal, plain lines elsewhere, errors in one line."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from bigtrk.errors import InputError

console = Console()
Item = TypeVar("Item")


def follow(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield `items` under a progress bar; elsewhere than on a terminal about ten plain lines."""
    if console.is_terminal:
        yield from track(items, description=what, total=total, console=console)
        return
    stride = max(1, total // 10)
    for done, item in enumerate(items, start=1):
        yield item
        if done % stride == 0 or done == total:
            print(f"{what}: {done}/{total}", flush=True)


def exit_on_bad_input(program: str, run: Callable[[], Any], speaks: bool = True) -> Any:
    """Call `run`; bad input ends in one line on stderr (if this rank `speaks`) and status 2."""
    try:
        return run()
    except InputError as error:
        if speaks:
            print(f"{program}: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
