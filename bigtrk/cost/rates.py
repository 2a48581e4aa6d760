"""The speed of a rank's computing: seconds per amount of each kind of work, and corrections.

Amounts are counted (footprint.py), seconds per amount are fitted to measured steps, and so seconds
are linear in them; on an accelerator those of each of three parts that go on at once. What the
counts do not see, as how well products of one width fill a core, which rows caches hold, or how
long freed memory stays at hand, is a factor by model, width, degree and the length of the pass,
measured on the same steps.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import Field

from bigtrk.config import Settings

# fp32, bf16: operations of matrix products. fused: those in float32 of a GPU's passes over edges,
# which reach 8 TFLOP/s on an H200, where products alone reach 33. products: bytes that these read
# and write. traffic: bytes that other operations do. fresh: bytes of tensors too large for the
# heap. operations: their number. batch: edges that are read and prepared, for a GPU with half of
# the nodes. weights: bytes of weights that are updated. steps: their number.
Amount = Literal[
    "fp32",
    "bf16",
    "fused",
    "products",
    "traffic",
    "fresh",
    "operations",
    "batch",
    "weights",
    "steps",
]
Amounts = dict[Amount, float]
KINDS: tuple[Amount, ...] = get_args(Amount)
# On an accelerator its host starts operations and reads the next events while it computes.
BESIDE: tuple[Amount, ...] = ("operations", "batch")
# Of the seconds of these and of the rest the longest counts, and others where they are as long:
# with 28 ms of operations and 27 ms of reading a step took 33 ms on an H200, with 35 and 52 ms
# 58 ms, with 82 and 100 ms 117 ms.
_OVERLAP = 3.0
# Engines that take longer for a step than DDP, however small it is: by so much for each tensor of
# weights as often as its layer is called, for each byte of weights, and for each pass.
EngineKind = Literal["fsdp2", "zero1", "zero3"]
EngineAmount = Literal["tensors", "weights", "passes"]
EngineAmounts = dict[EngineAmount, float]
ENGINE_AMOUNTS: tuple[EngineAmount, ...] = ("tensors", "weights", "passes")
_Seconds = Annotated[float, Field(ge=0)]


class Correction(Settings):
    """The measured seconds of a pass over those counted, for one model at one width, on a graph
    with so many edges per node. seconds: those counted.
    """

    model: str
    recompute: str
    precision: str
    hidden: int = Field(ge=1)
    degree: float = Field(gt=0)
    seconds: float = Field(gt=0)
    factor: float = Field(gt=0)


class Rates(Settings):
    """Seconds of each amount of work, those by which engines take more than DDP, and corrections by
    model, width, degree and length.
    """

    seconds: dict[Amount, _Seconds]
    engines: dict[EngineKind, dict[EngineAmount, _Seconds]] = Field(default_factory=dict)
    corrections: list[Correction] = Field(default_factory=list)

    def of(self, amounts: Amounts) -> float:
        """Returns the seconds of these amounts of work, not corrected."""
        return sum(self.seconds.get(kind, 0.0) * amount for kind, amount in amounts.items())

    def of_pass(self, amounts: Amounts, factor: Callable[[float], float], beside: bool) -> float:
        """Returns the seconds of a pass with these amounts; `factor` corrects what is counted.

        beside: of an accelerator, whose operations are started, and whose next events are read,
        meanwhile.
        """
        apart = BESIDE if beside else ()
        counted = self.of({kind: n for kind, n in amounts.items() if kind not in apart})
        own = counted * factor(counted)
        return overlapped([own, *(self.of({kind: amounts.get(kind, 0.0)}) for kind in apart)])

    def of_engine(self, kind: EngineKind | None, amounts: EngineAmounts) -> float:
        """Returns the seconds that a step of an engine takes more than one of DDP."""
        if kind is None or kind not in self.engines:
            return 0.0
        known = self.engines[kind]
        return sum(known.get(amount, 0.0) * number for amount, number in amounts.items())

    def factor(
        self, model: str, recompute: str, precision: str, hidden: int, degree: float, seconds: float
    ) -> float:
        """Returns the correction of a model's pass that is counted as so many seconds: 1 for a
        model that was not measured, else between those measured at each width and degree, between
        the degrees of each width, and between these widths, on logarithmic scales.
        """
        asked = (model, recompute, precision)
        known: dict[int, dict[float, list[tuple[float, float]]]] = {}
        for one in self.corrections:
            if (one.model, one.recompute, one.precision) == asked:
                lengths = known.setdefault(one.hidden, {}).setdefault(one.degree, [])
                lengths.append((one.seconds, one.factor))
        if not known or seconds <= 0:
            return 1.0
        at_widths = []
        for width, degrees in known.items():
            at_degrees = [(at, _between(seconds, lengths)) for at, lengths in degrees.items()]
            at_widths.append((width, _between(degree, at_degrees)))
        return _between(hidden, at_widths)


def overlapped(seconds: Sequence[float]) -> float:
    """Returns how long it takes what goes on at once, each for so many seconds."""
    if len(seconds) == 1:
        return seconds[0]
    # Counts of nothing may be less than it, by rounding.
    return math.pow(sum(math.pow(max(one, 0.0), _OVERLAP) for one in seconds), 1 / _OVERLAP)


def without(seconds: float, others: Sequence[float]) -> float:
    """Returns for how long that goes on which takes so many seconds with `others`, 0 at least."""
    left = math.pow(seconds, _OVERLAP) - sum(math.pow(one, _OVERLAP) for one in others)
    return math.pow(max(left, 0.0), 1 / _OVERLAP)


def _between(x: float, known: Sequence[tuple[float, float]]) -> float:
    """Interpolates between known values, on logarithmic scales; beyond the last they stay. Of
    several at one place it takes the geometric mean.
    """
    places: dict[float, list[float]] = {}
    for place, value in known:
        places.setdefault(place, []).append(math.log(value))
    xs = sorted(places)
    ys = [float(np.mean(places[place])) for place in xs]
    return math.exp(float(np.interp(math.log(x), np.log(xs), ys)))
