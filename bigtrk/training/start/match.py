"""The tensors of a model that weights from elsewhere have, by name and shape."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from bigtrk.errors import one_line

_MOST_NAMED = 100  # tensors of a message: a file may have any number of them
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Match:
    """The names of tensors: `taken` from elsewhere; of the model's others those that are not there
    (`lacking`) or of another shape there (`reshaped`, with both shapes); and those there that the
    model has not (`unknown`).
    """

    taken: list[str]
    lacking: list[str]
    reshaped: list[str]
    unknown: list[str]

    @property
    def is_whole(self) -> bool:
        """Says whether the model's tensors are all there, and no others."""
        return not self.lacking and not self.reshaped and not self.unknown

    @property
    def told(self) -> str:
        """Counts what was taken, by part of the model, and lists what was left."""
        parts = Counter(name.split(".")[0] for name in self.taken)
        counts = ", ".join(f"{part} {n}" for part, n in parts.items())
        drawn = [*self.lacking, *self.reshaped]
        said = f"{len(self.taken)} of {len(self.taken) + len(drawn)} tensors taken ({counts})"
        if drawn:
            said += f"; drawn by training.seed: {_listed(drawn)}"
        return said + (f"; not used: {_listed(self.unknown)}" if self.unknown else "")

    @property
    def complaint(self) -> str:
        """Says what keeps the match from being whole."""
        kinds = (
            ("lacks", self.lacking),
            ("has another shape of", self.reshaped),
            ("has what the model has not:", self.unknown),
        )
        return "; ".join(f"{what} {_listed(names)}" for what, names in kinds if names)


def match_of(found: Tensors, state: Tensors) -> Match:
    """Compares weights from elsewhere with a model's own."""
    common = [name for name in state if name in found]
    return Match(
        taken=[name for name in common if found[name].shape == state[name].shape],
        lacking=[name for name in state if name not in found],
        reshaped=[
            f"{name} ({list(found[name].shape)} instead of {list(state[name].shape)})"
            for name in common
            if found[name].shape != state[name].shape
        ],
        unknown=[name for name in found if name not in state],
    )


def _listed(names: Sequence[str]) -> str:
    shown = [one_line(name) for name in names[:_MOST_NAMED]]
    more = len(names) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])])
