"""Atomic instructions in the PTX of a kernel."""

import re

# atom and red, red on all GPUs of a multicast address, and bulk copies that reduce into what is
# there. A statement begins with its instruction, but for a label and a predicate. redux.sync is
# none, which reduces integers among the registers of a warp, nor multimem.ld_reduce, which writes
# nothing.
_ATOMIC = re.compile(
    r"(?:^|[;:{}])\s*(?:@!?%?\w+\s+)?((?:atom|red|multimem\.red|cp\.reduce)\.\S+)", re.MULTILINE
)


def atomics(ptx: str) -> list[str]:
    """Returns the instructions that change memory atomically, of all types and spaces."""
    return _ATOMIC.findall(ptx)
