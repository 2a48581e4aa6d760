"""Counts the gaps of the C library's heap between tensors too small for the pool of pages."""

from bigtrk.cost.event_size import SectorSize
from bigtrk.parallel.host import LARGE

# Between tensors too small for the pool of pages (parallel/page_pool.py) the heap keeps gaps, the
# larger the longer these are: so many of the largest, as was measured and is not explained. While
# the heap had tensors of up to 2 MiB, of runs on sectors or of attention networks those with some
# of 1 to 2 MB took 43 to 96 MB more than is counted without it, others 1 to 26 MB. With those of
# less than 1 MiB there, an attention network took 129 MiB more than with these counted; with those
# of less than 256 KiB they are few.
_MANY_GAPS, _FEW_GAPS = 35.0, 12.0


def kept_in_gaps(size: SectorSize, row_bytes: int, peak: float, many: bool) -> float:
    """Returns the bytes that a CPU's heap keeps beyond the `peak` bytes of a pass over sectors of
    this size, with so many bytes in a row of an edge or a node: at most twice as many. many: of an
    event in sectors or of an attention network, which leave more gaps than others.
    """
    tensors = (rows * row_bytes for rows in (size.edges, size.nodes))
    largest = max((n_bytes for n_bytes in tensors if n_bytes < LARGE), default=0.0)
    return min((_MANY_GAPS if many else _FEW_GAPS) * largest, 2 * peak)
