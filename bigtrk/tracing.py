"""Named ranges of a training step, for a profiler's trace and to say where a rank is."""

from typing import Any

from torch.autograd import profiler

WAITING = "waiting for other ranks"
_IN = "in "

# The thread that trains enters them, or autograd's while that one waits for it.
_entered: list[str] = []
_moves = 0


class traced:  # noqa: N801  # used like a function
    """A named range, also in a profiler's trace. An error raised inside names it in a note."""

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
    """Marks a block that ends only when other ranks get there, too."""
    return traced(WAITING)


def place() -> str:
    """Names the ranges that this process is in, each inside the one before; "" if in none."""
    return ", ".join(_entered)


def is_waiting() -> bool:
    """True if this process is where other ranks must get, too."""
    return bool(_entered) and _entered[-1] == WAITING


def place_of(error: BaseException) -> str:
    """Names the ranges in which `error` was raised; "" if it was outside of all."""
    notes = [note for note in getattr(error, "__notes__", []) if note.startswith(_IN)]
    return notes[0].removeprefix(_IN) if notes else ""


def moves() -> int:
    """Counts how often ranges were entered and left: it grows while work is done."""
    return _moves
