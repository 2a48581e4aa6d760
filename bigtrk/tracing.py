"""Named ranges of a training step, for a profiler's trace."""

from contextlib import AbstractContextManager, nullcontext

from torch.autograd import profiler


def traced(name: str) -> AbstractContextManager[object]:
    """A range of the trace, where a profiler runs.

    Elsewhere nothing: torch's record_function costs 5 us then as well, and is an operation where
    operations are counted (parallel/footprint.py).
    """
    return profiler.record_function(name) if profiler._is_profiler_enabled else nullcontext()
