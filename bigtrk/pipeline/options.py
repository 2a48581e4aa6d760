"""Options for making tracks."""

from dataclasses import dataclass
from enum import StrEnum


class Precision(StrEnum):
    """The numbers that a classifier computes in, as commands name them."""

    FLOAT64 = "float64"
    FP32 = "fp32"
    BF16 = "bf16"


@dataclass(frozen=True)
class MakingOptions:
    """Options for making tracks. max_edges: most edges that one rank scores; larger graphs are cut
    and scored on all ranks; None: no limit. precision: of the classifier; None: as trained.
    """

    min_hits: int = 3
    max_edges: int | None = None
    precision: Precision | None = None
