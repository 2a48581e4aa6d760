"""Rows with equal keys, put together."""

import numpy as np

from bigtrk.graphs.coordinates import Ints


def grouped(keys: Ints) -> tuple[Ints, Ints]:
    """Returns the order that sorts rows by their `keys` [K, C], and the place in that order where
    each group of equal ones starts.
    """
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    new = np.ones(len(keys), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, np.flatnonzero(new)


def numbered(keys: Ints) -> tuple[Ints, Ints]:
    """Returns the different rows of `keys` [K, C], ascending, and the number of each row's own
    among them [K].
    """
    order, start = grouped(keys)
    number = np.empty(len(keys), dtype=np.int64)
    number[order] = np.repeat(np.arange(len(start)), np.diff(start, append=len(keys)))
    return keys[order[start]], number


def rows_of(wanted: Ints, known: Ints) -> Ints:
    """Returns the row of `known` [M, C], each different, that equals each of `wanted` [K, C]; -1
    where there is none.
    """
    different, number = numbered(np.concatenate([known, wanted]))
    row = np.full(len(different), -1, dtype=np.int64)
    row[number[: len(known)]] = np.arange(len(known))
    return row[number[len(known) :]]
