"""The passes over trees of hits in C (hit_tree.c), compiled once per machine; plain.py says
what they compute.
"""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from bigtrk.native_code import NATIVE, compiled, pointers
from bigtrk.tracks.builders.trees.constraints import Constraints, Ids, Values

# Fused multiplication would round distances unlike the plain passes.
CODE = "trees", Path(__file__).with_name("hit_tree.c"), (), (NATIVE, "-ffp-contract=off")


@cache
def library() -> ctypes.CDLL | None:
    """Loads the compiled passes; None where they cannot be compiled or loaded."""
    found = compiled(*CODE)
    if found is not None:
        found.unite.restype = ctypes.c_long
        found.lay_out.restype = found.take_best.restype = None
    return found


def unite(edges: Ids, constraints: Constraints | None, n_hits: int) -> tuple[Ids, Ids]:
    """Computes plain.unite."""
    # Compiled code would write to wherever they lead.
    assert edges.min(initial=0) >= 0, "edges lead to hits"
    assert edges.max(initial=-1) < n_hits, "edges lead to hits"
    most = min(edges.shape[1], max(n_hits - 1, 0))
    children, used = np.empty((most, 2), np.int64), np.empty(most, np.int64)
    scratch = np.empty((3, n_hits), np.int64)
    forbidden = constraints or Constraints(np.empty((0, 3)), np.empty((0, 3), np.int64))
    made = _library().unite(
        *pointers(edges[0], edges[1]),
        ctypes.c_long(edges.shape[1]),
        *pointers(forbidden.position),
        *(pointers(forbidden.modules) if constraints else [None]),
        ctypes.c_double(forbidden.reach),
        ctypes.c_long(n_hits),
        *pointers(*scratch, children, used),
    )
    return children[:made], used[:made]


def lay_out(children: Ids, n_hits: int) -> tuple[Ids, Ids]:
    """Computes plain.lay_out."""
    first, size = np.empty((2, n_hits + len(children)), np.int64)
    _library().lay_out(*pointers(children), *_counts(children, n_hits), *pointers(first, size))
    return first, size


def take_best(children: Ids, values: Values, n_hits: int) -> Ids:
    """Computes plain.take_best."""
    best, taken = np.empty(len(children)), np.empty(len(children), np.uint8)
    _library().take_best(
        *pointers(children, values), *_counts(children, n_hits), *pointers(best, taken)
    )
    return np.flatnonzero(taken)


def _library() -> ctypes.CDLL:
    found = library()
    assert found is not None, "not compiled"
    return found


def _counts(children: Ids, n_hits: int) -> tuple[ctypes.c_long, ctypes.c_long]:
    return ctypes.c_long(n_hits), ctypes.c_long(len(children))
