"""Named ranges of a training step, for a profiler's trace and to say where a rank is."""

from typing import Any

from torch.autograd import profiler

WAITING = "waiting for other ranks"
_IN = "in "

# Only one thread enters ranges at a time: the training's, or autograd's while it waits.
_entered: list[str] = []
_moves = 0


class traced:  # noqa: N801  # used like a function
    """A named range, shown in a profiler's trace. A note names it in any error raised inside."""

    __slots__ = ("_name", "_range")

    def __init__(self, name: str) -> None:
        self._name = name
        self._range: profiler.record_function | None = None

    def __enter__(self) -> None:
        global _moves
        _moves += 1
        _entered.append(self._name)
        if profiler._is_profiler_enabled:  # else the range would cost 5 us, and be counted
            self._range = profiler.record_function(self._name)
            self._range.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        global _moves
        _moves += 1
        if self._range is not None:
            self._range.__exit__(kind, error, trace)
        if error is not None and not place_of(error):
            error.add_note(_IN + place())
        _entered.pop()


def waiting() -> traced:
    """Returns a range that marks a wait for the other ranks."""
    return traced(WAITING)


def place() -> str:
    """Returns the names of the ranges that this process is in, outermost first; "" if in none."""
    return ", ".join(_entered)


def is_waiting() -> bool:
    """True if this process waits for other ranks."""
    return bool(_entered) and _entered[-1] == WAITING


def place_of(error: BaseException) -> str:
    """Returns the names of the ranges in which `error` was raised; "" if there were none."""
    notes = [note for note in getattr(error, "__notes__", []) if note.startswith(_IN)]
    return notes[0].removeprefix(_IN) if notes else ""


def moves() -> int:
    """Returns how many times ranges were entered or left; it grows while the process works."""
    return _moves
