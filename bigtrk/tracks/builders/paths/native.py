"""Longest paths by compiled code (paths.c)."""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigtrk.native_code import NATIVE, compiled, pointers
from bigtrk.tracks.builders.paths.plain import UNUSED
from bigtrk.tracks.builders.paths.rule import Rule
from bigtrk.tracks.builders.paths.successors import Successors

CODE = "tracks", Path(__file__).with_name("paths.c"), (), (NATIVE,)


@cache
def library() -> ctypes.CDLL | None:
    """Loads the compiled code; None where it cannot be compiled or loaded."""
    found = compiled(*CODE)
    if found is not None:
        found.take_paths.restype = None
    return found


def take_paths(graph: Successors, rule: Rule) -> NDArray[np.int64]:
    """Returns the path of each node [V], as `plain.take_paths` does."""
    found = library()
    assert found is not None, "not compiled"
    n_nodes = len(graph.hit)
    path = np.full(n_nodes, UNUSED, np.int64)
    scratch = np.full(5 * n_nodes, -1, np.int64)
    found.take_paths(
        *pointers(graph.first, graph.target, graph.score),
        ctypes.c_long(n_nodes),
        ctypes.c_double(rule.best),
        ctypes.c_double(rule.others),
        ctypes.c_long(rule.min_hits),
        *pointers(scratch, path),
    )
    return path
