"""A trace of a few training steps, for Perfetto or Chrome's trace viewer.

Its named ranges are opened in several places: data, exchange and reduce with the stopwatch that
times them (parallel/world.py), the model's in models/, the others in the loop. Reductions of
gradients during the backward pass have their library's names, such as gloo:all_reduce.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.profiler import profile, schedule

from bigtrk.console import say
from bigtrk.disk.files import write_atomically
from bigtrk.parallel.ranks import Ranks

# First steps allocate and compile; the last of them warms up the profiler.
SKIPPED, RECORDED = 3, 3


@contextmanager
def profiled(folder: Path, ranks: Ranks, n_steps: int) -> Iterator[Callable[[], None]]:
    """Writes `folder`/trace-rankR.json.gz of the fourth to the sixth of `n_steps` steps (of those
    there are, if fewer) on the first and the last rank; yields what to call after each step.
    """
    if ranks.rank not in (0, ranks.world_size - 1):
        yield lambda: None
        return

    def write(recorded: profile) -> None:
        path = folder / f"trace-rank{ranks.rank}.json.gz"
        write_atomically(path, lambda temporary: _export(recorded, temporary))
        if ranks.is_first:
            say(f"trace of {active} steps in {path}; open it with https://ui.perfetto.dev")

    skipped = min(SKIPPED, n_steps - 1)
    warmup, active = min(1, skipped), min(RECORDED, n_steps - skipped)
    steps = schedule(wait=skipped - warmup, warmup=warmup, active=active, repeat=1)
    with profile(schedule=steps, on_trace_ready=write) as recorder:
        yield recorder.step


def _export(recorded: profile, path: Path) -> None:
    # torch compresses what is named so, and follows a link of that name in a folder of others.
    with TemporaryDirectory() as private:
        compressed = Path(private) / "trace.gz"
        recorded.export_chrome_trace(str(compressed))
        shutil.copyfile(compressed, path)
