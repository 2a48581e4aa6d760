"""The way of a sector through a model, beside that of the whole graph."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

from bigtrk.proof.alignment import Aligned, Rows
from bigtrk.proof.trace import Step

Steps = dict[Step, list[Tensor]]  # what a pass made, in order


class Source(NamedTuple):
    """The step that made a tensor, and which of the step's tensors it is."""

    step: Step
    place: int


class Way:
    """A sector's way through the model, beside that of the whole graph.

    fault: the first step between layers where rows differ; function: the first torch function that
    gives other rows since those between layers were last right.
    """

    def __init__(self, rows: Rows, whole: Steps, tolerance: float) -> None:
        self._rows, self._whole, self._tolerance = rows, whole, tolerance
        self.fault: Step | None = None
        self.function: Step | None = None

    def note(self, step: Step, tensors: Sequence[Tensor]) -> None:
        if self.fault:
            return
        found = self.aligned(step, tensors)
        differs = not self.agrees(found)
        if differs and step.is_whole:
            self.fault = step
        elif differs and self.function is None:
            self.function = step
        elif found and step.is_whole:
            self.function = None

    def aligned(self, step: Step, tensors: Iterable[Tensor]) -> list[Aligned]:
        """Aligns what a step made here with what it made of the whole graph."""
        pairs = zip(self._whole.get(step, []), tensors, strict=False)
        found = [self._rows.align(whole, part) for whole, part in pairs]
        return [each for each in found if each]

    def aligned_at(self, source: Source, tensor: Tensor) -> Aligned | None:
        """Aligns a tensor with that which its source made of the whole graph."""
        whole = self._whole.get(source.step, [])
        return self._rows.align(whole[source.place], tensor) if source.place < len(whole) else None

    def agrees(self, found: Iterable[Aligned]) -> bool:
        """Says whether all rows are those of the whole graph."""
        return all(each.difference <= self._tolerance for each in found)
