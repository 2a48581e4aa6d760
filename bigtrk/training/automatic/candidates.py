"""The settings that may be chosen for a run: those that its user has left open.

None of them changes what is trained, but for the precision, which is open only if the user says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import get_args

from bigtrk.config import apply_overrides
from bigtrk.training.settings import Configuration

# Values by dotted key.
Values = tuple[tuple[str, str], ...]
IN_MEMORY = ("training.spill", "null")
_AS_STORED = ("training.routing", "stored")
_REPLICATED: Values = (("engine.name", "ddp"),)
_FSDP2: Values = (("engine.name", "fsdp2"),)
_ZERO: tuple[Values, ...] = tuple(
    (("engine.name", "deepspeed"), ("engine.ds_config", stage))
    for stage in ("zero1", "zero2", "zero3")
)


@dataclass(frozen=True)
class Candidate:
    """Values of the settings that are open, by dotted key."""

    values: Values

    @property
    def overrides(self) -> list[str]:
        """Writes the values as a command line does."""
        return [f"{key}={value}" for key, value in self.values]

    @property
    def as_stored(self) -> "Candidate":
        """Returns the candidate that trains events in all sectors that they are stored in."""
        return Candidate((*self.values, _AS_STORED))

    @property
    def routed(self) -> "Candidate":
        """Returns the candidate whose sectors are merged, or not, by routing."""
        return Candidate(tuple(value for value in self.values if value != _AS_STORED))

    def configured(self, configuration: Configuration) -> Configuration:
        """Returns the configuration with these values."""
        content = configuration.model_dump(mode="json")
        return apply_overrides(Configuration, content, self.overrides, "the choice")


def candidates(
    configuration: Configuration, world: int, allow_bf16: bool, on_cpu: bool
) -> list[list[Candidate]]:
    """Lists the candidates on `world` ranks in groups: one of a later group, whose engine shards
    the model, is for a state that fits with none of an earlier one.
    """
    levers = [_recomputations(configuration, on_cpu), _precisions(configuration, allow_bf16)]
    return [
        [Candidate(sum(values, ())) for values in product(*levers, engines)]
        for engines in _engines(configuration, world)
    ]


def _recomputations(configuration: Configuration, on_cpu: bool) -> Sequence[Values]:
    """Lists what keeps activations where they are predicted; `offload` is for a host's memory, of
    which a rank's share is not known, and only those of `chunk` on a CPU may be in files.
    """
    known = [value for value in _open_values(configuration, "recompute") if value != "offload"]
    ways: list[Values] = [(("model.recompute", value),) for value in known] or [()]
    if not configuration.training.spill or not known:
        return ways
    in_memory: list[Values] = [(*way, IN_MEMORY) for way in ways]
    return [*in_memory, (("model.recompute", "chunk"),)] if on_cpu else in_memory


def _precisions(configuration: Configuration, allow_bf16: bool) -> Sequence[Values]:
    """Lists the configuration's precision and, if allowed, bf16, which is faster and rounds more.

    A precision that is configured stays.
    """
    known = _open_values(configuration, "precision")
    if not allow_bf16 or "bf16" not in known:
        return [()]
    return [(("model.precision", value),) for value in known]


def _open_values(configuration: Configuration, name: str) -> tuple[str, ...]:
    """Returns the values of a setting of the model that its user has left open."""
    model = configuration.model
    field = type(model).model_fields.get(name)
    if field is None or name in model.model_fields_set:
        return ()
    return get_args(field.annotation)


def _engines(configuration: Configuration, world: int) -> list[Sequence[Values]]:
    """Lists engines in groups; a configured one stays."""
    if configuration.engine.model_fields_set:
        return [[()]]
    # One rank has nobody to share its state with, and Muon updates whole matrices.
    if world == 1 or configuration.optimizer.name == "muon":
        return [[_REPLICATED]]
    # DeepSpeed's own buckets may be unable to drop a step, as a spike guard does.
    zero = _ZERO if configuration.training.spike_guard == "off" else ()
    return [[_REPLICATED], [_FSDP2, *zero]]
