"""The options of making tracks."""

from dataclasses import dataclass
from enum import StrEnum


class Precision(StrEnum):
    """The numbers that a classifier computes in, as commands name them."""

    FLOAT64 = "float64"
    FP32 = "fp32"
    BF16 = "bf16"


@dataclass(frozen=True)
class MakingOptions:
    """max_edges: the most edges of a graph that one rank scores; a larger graph is cut, and all
    ranks score it; None: no limit. precision: of the classifier; None: as it was trained.
    """

    min_hits: int = 3
    max_edges: int | None = None
    precision: Precision | None = None
