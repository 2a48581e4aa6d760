"""Memory that runs out on one rank, which then cannot tell the others: they wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bigtrk.errors import RankError, reason
from bigtrk.parallel.ranks import Ranks
from bigtrk.tracing import place_of

# torch has no exception of its own for host memory that cannot be allocated.
_HOST = ("can't allocate memory", "not enough memory")


@contextmanager
def report_out_of_memory(ranks: Ranks) -> Iterator[None]:
    """Replaces an allocator's error inside the block by one that names this rank.

    Raises:
        RankError: instead of the allocator's error, with rank, place and remedy.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise RankError(
            f"rank {ranks.rank} ran out of memory in {place_of(error) or 'training'} "
            f"({reason(error)}); resume with a lower training.memory_gib, so that events are "
            f"trained in more sectors, or on more ranks; `bigtrk plan` says what events need"
        ) from None


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    known = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, known) or any(words in str(error) for words in _HOST)
