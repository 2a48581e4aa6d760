"""The part of a run's record on the events that it trains on, as far as their graphs tell."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from bigtrk.errors import one_line
from bigtrk.records.run import DataRecord
from bigtrk.training.data.events import Events

_FILTERED = "graphs"  # the name of what was built of other graphs, and of these graphs' own origin


def data_record(events: Events) -> DataRecord:
    """Counts events, nodes and edges, and says what the graphs were built from and what share of
    the true edges they hold.
    """
    records = [source.record for source in events.train]
    sources = {_source(record.get("made_from")) for record in records}
    return DataRecord(
        train_events=len(records),
        validation_events=len(events.validation),
        nodes=sum(record["nodes"] for record in records),
        edges=sum(record["edges"] for record in records),
        sources=tuple(sorted(sources - {""})),
        edge_efficiency=_mean(records, "edge_efficiency"),
        target_efficiency=_mean(records, "target_efficiency"),
    )


def _source(made_from: object) -> str:
    """Names the format of the files that a graph was built from; "" where nobody knows."""
    while isinstance(made_from, Mapping) and isinstance(made_from.get(_FILTERED), Mapping):
        made_from = made_from[_FILTERED]
    found = made_from.get("from") if isinstance(made_from, Mapping) else None
    return one_line(found) if isinstance(found, str) and found != _FILTERED else ""


def _mean(records: Sequence[Mapping[str, Any]], share: str) -> float | None:
    """Returns the mean of a share that all records have."""
    found = [record.get(share) for record in records]
    known = [one for one in found if isinstance(one, float | int) and 0 <= one <= 1]
    return fmean(known) if known and len(known) == len(found) else None
