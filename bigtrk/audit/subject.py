"""Holds what is audited: a run's configuration, its scales and the events to make gradients of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor, nn

from bigtrk.audit.names import Way
from bigtrk.config import apply_overrides
from bigtrk.graphs.sector import Sector
from bigtrk.parallel.world import World
from bigtrk.records.run import MeasuredScales
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration

# A draw is of one event, or of one part of one: what several make together follows from that. All
# is computed in float32 by one process in its memory, whatever the run's precision and engine.
_ONE_AT_A_TIME = (
    "engine={}",
    "sampling.method=none",
    "sampling.bulk=1",
    "data.sectors=halo",
    "training.events_per_step=1",
    "training.batching=random",
    "training.auto=false",
    "training.spill=null",
    "training.spike_guard='off'",  # plain off is YAML's false
)
_METHODS = {
    Way.SHADOW: ("sampling.method=shadow",),
    Way.NAIVE: ("sampling.method=sectors", "data.sectors=naive"),
    Way.HALO: ("sampling.method=sectors", "data.sectors=halo"),
    Way.WEDGES: ("sampling.method=wedges",),
}
DRAWN = tuple(_METHODS)


@dataclass(frozen=True)
class HeldSource(EventSource):
    """An event that stays in memory once it is read, since each draw reads it again."""

    _held: dict[tuple[int, int], Sector] = field(default_factory=dict)

    def read_several(self, numbers: Sequence[int], parts: int) -> list[Sector]:
        """Reads parts `numbers` of the event in `parts` sectors, from disk at the first time."""
        missing = [part for part in numbers if (part, parts) not in self._held]
        read = super().read_several(missing, parts) if missing else []
        self._held.update({(part, parts): one for part, one in zip(missing, read, strict=True)})
        return [self._held[part, parts] for part in numbers]


@dataclass(frozen=True)
class Subject:
    """A configuration with the scales `measured` by its run, and the events, of which each step
    takes one.
    """

    configuration: Configuration
    measured: MeasuredScales
    world: World
    sources: list[EventSource]

    @cached_property
    def maker(self) -> BatchMaker:
        """Makes the batches of this configuration."""
        return BatchMaker(self.configuration, self.world, self.measured)

    @property
    def has_bf16(self) -> bool:
        """Says whether the model can compute in bfloat16."""
        return "precision" in type(self.configuration.model).model_fields

    @property
    def ways(self) -> tuple[Way, ...]:
        """Lists the ways that the events allow."""
        cut = any(source.parts > 1 for source in self.sources)
        round_ = all("phi" in source.record["node_feature_names"] for source in self.sources)
        return tuple(
            way
            for way in Way
            if (cut or not way.needs_sectors) and (round_ or way is not Way.WEDGES)
        )

    def model(self, weights: Mapping[str, Tensor]) -> nn.Module:
        """Makes the model with `weights`, by name."""
        model = build_model(self.configuration)
        model.load_state_dict(weights)
        return model.to(self.world.device)

    def with_settings(self, overrides: Sequence[str]) -> "Subject":
        """Changes settings, each as `key.sub=value`."""
        content = self.configuration.model_dump(mode="json")
        changed = apply_overrides(Configuration, content, overrides, "configuration")
        return replace(self, configuration=changed)

    def one_at_a_time(self, seed: int) -> "Subject":
        """Lets steps be of one whole event each; what is drawn follows from `seed`."""
        precision = ("model.precision=fp32",) if self.has_bf16 else ()
        return self.with_settings([*_ONE_AT_A_TIME, *precision, f"training.seed={seed}"])

    def drawing(self, way: Way) -> "Subject":
        """Lets steps be of mini-batches made in one of the `DRAWN` ways."""
        return self.with_settings(_METHODS[way])

    def in_bf16(self) -> "Subject":
        """Lets the model compute in bfloat16."""
        return self.with_settings(["model.precision=bf16"])
