"""Named ranges of a training step: for a profiler's trace, and to say where a rank is."""

from types import TracebackType

from torch.autograd import profiler

WAITING = "waiting for other ranks"
_IN = "in "

# Entered by the thread that trains, or by autograd's while that one waits for it.
_entered: list[str] = []
_moves = 0


class traced:  # noqa: N801  # used as a function is
    """A range; of the trace too, where a profiler runs. What is raised inside says so in its notes.

    torch's record_function costs 5 us also where no profiler runs, and is an operation where
    operations are counted (cost/footprint.py).
    """

    __slots__ = ("_name", "_range")

    def __init__(self, name: str) -> None:
        self._name = name
        self._range: profiler.record_function | None = None

    def __enter__(self) -> None:
        _move()
        _entered.append(self._name)
        if profiler._is_profiler_enabled:
            self._range = profiler.record_function(self._name)
            self._range.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._range is not None:
            self._range.__exit__(kind, error, trace)
        if error is not None and not place_of(error):
            error.add_note(_IN + place())
        _entered.pop()
        _move()


def waiting() -> traced:
    """Around what ends only when other ranks get there, too."""
    return traced(WAITING)


def place() -> str:
    """The ranges that this process is in, each inside the one before; "" if in none."""
    return ", ".join(_entered)


def is_waiting() -> bool:
    """Whether this process is where other ranks must get, too."""
    return bool(_entered) and _entered[-1] == WAITING


def place_of(error: BaseException) -> str:
    """Where `error` was raised; "" if it was outside of all ranges."""
    notes = [note for note in getattr(error, "__notes__", []) if note.startswith(_IN)]
    return notes[0].removeprefix(_IN) if notes else ""


def moves() -> int:
    """How many ranges were entered and left: it grows while work is done."""
    return _moves


def _move() -> None:
    global _moves
    _moves += 1
