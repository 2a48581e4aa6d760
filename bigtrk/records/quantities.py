"""The values that records hold, in ranges in which their sums, ratios and axes stay finite."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

LARGEST, SMALLEST = 1e40, 1e-30  # losses that diverge are as large as float32 goes
MOST = 1000  # bins, parts of a model, packages: each becomes a row of a table


def _moderate(value: float) -> float:
    if abs(value) > LARGEST:
        raise ValueError(f"beyond {LARGEST:g}")
    return value


def _not_tiny(value: float) -> float:
    if 0 < value < SMALLEST:
        raise ValueError(f"between 0 and {SMALLEST:g}")
    return value


Loss = Annotated[float, Field(allow_inf_nan=True), AfterValidator(_moderate)]  # NaN: it diverged
Number = Annotated[float, AfterValidator(_moderate)]
# Of a bin: axes show its logarithm.
Bound = Annotated[float, AfterValidator(_moderate), AfterValidator(_not_tiny)]
Ratio = Annotated[float, Field(ge=0, le=1)]
# Seconds, and edges in them: other values are divided by them.
Measure = Annotated[float, Field(ge=0, le=1e30), AfterValidator(_not_tiny)]
Place = Annotated[int, Field(ge=0, lt=2**40, strict=True)]  # of a step or an epoch
Parts = Annotated[int, Field(ge=1, le=4096)]  # sectors of an event
Ranks = Annotated[int, Field(ge=1, le=2**17)]  # a number of them, or of cores
Text = Annotated[str, Field(max_length=1000)]
PathText = Annotated[str, Field(max_length=4096)]  # as long as Linux takes them


def some() -> Any:
    """Makes the field of a dictionary that is empty by default, and never large."""
    return Field(default_factory=dict, max_length=MOST)
