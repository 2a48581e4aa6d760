"""The numbers of records by name, "epoch/validation/auc": so they are called wherever they are
shown while a run trains, in loggers as in `bigtrk watch`.
"""

from collections.abc import Iterator
from typing import Any

from bigtrk.records.metrics import MetricsRecord

# The key of each kind of record that its scalars are drawn against.
X_AXES = {"step": "step", "epoch": "epoch", "validation": "step"}


def scalars(record: MetricsRecord) -> Iterator[tuple[str, float]]:
    """Yields the numbers of a record by name, "epoch/validation/auc", without those not known."""
    left_out = {"kind", "routes", "ranks", *X_AXES.values()}
    yield from _numbers(record.kind, record.model_dump(mode="json", exclude=left_out))


def place_of(record: MetricsRecord) -> int:
    """Returns the step or epoch that a record's scalars are drawn at, counted from 0."""
    place: int = getattr(record, X_AXES[record.kind])
    return place


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{name}/{key}", item)
    elif isinstance(value, int | float):
        yield name, float(value)
