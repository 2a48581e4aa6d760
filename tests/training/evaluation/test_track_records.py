"""Tests the record of what is measured in bins."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.records.evaluation import EdgeBins
from bigtrk.tracks.bins import binned_ratio
from bigtrk.training.evaluation.tracks import binned, edge_bins_record

EDGES = (1.0, 2.0, 4.0)


def test_a_record_has_its_bins_and_beside_them_what_is_in_none() -> None:
    values = np.array([0.5, 1.0, 1.5, 2.0, 4.0, 9.0, math.nan])
    found = binned(binned_ratio(values, values < 2, EDGES))
    assert (found.edges, found.part, found.whole) == (EDGES, (2, 0), (2, 1))
    assert (found.outside, found.unknown) == ((1, 3), (0, 1))


@given(st.lists(st.tuples(st.floats(allow_nan=True), st.booleans())))
def test_every_value_is_in_the_record_once(pairs: list[tuple[float, bool]]) -> None:
    values, counted = np.array([x for x, _ in pairs]), np.array([c for _, c in pairs], bool)
    found = binned(binned_ratio(values, counted, EDGES))
    part = sum(found.part) + found.outside[0] + found.unknown[0]
    whole = sum(found.whole) + found.outside[1] + found.unknown[1]
    assert (part, whole) == (counted.sum(), len(pairs))


def test_bins_that_are_not_known_are_none() -> None:
    ratio = binned_ratio(np.array([1.0]), np.array([True]), EDGES)
    record = edge_bins_record({"purity_by_eta": ratio})
    assert record == EdgeBins(purity_by_eta=binned(ratio))
    assert record.efficiency_by_pt is None
