"""What a manifest must say of an event, for all who plan with it before the file is read."""

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, FiniteFloat, model_validator

from bigtrk.config import Settings

Count = Annotated[int, Field(ge=0, lt=2**40)]
Id = Annotated[int, Field(ge=0, lt=2**31)]  # of sectors, which are stored in 32 bits
Share = Annotated[FiniteFloat, Field(ge=0)]
Digests = dict[str, str]
_ENTRY = ConfigDict(extra="ignore", frozen=True, strict=True)


class GraphEntry(Settings):
    """An event of a folder of graphs; keys that it does not know are anybody's."""

    model_config = _ENTRY

    event: str
    file: str
    bytes: Count
    digests: Digests
    nodes: Count
    edges: Count
    node_feature_names: list[str]
    edge_feature_names: list[str]
    source_digests: Digests = Field(default_factory=dict)
    made_from: dict[str, Any] = Field(default_factory=dict)
    purity: float | None = None


class CutQuality(Settings):
    """What predictions use of the quality of a cut."""

    model_config = _ENTRY

    cut_fraction: Share
    halo_fraction: Share
    edge_imbalance: Share


class SectorEntry(Settings):
    """The counts of one sector; splits by the other part."""

    model_config = _ENTRY

    owned: Id
    halo: Id
    edges: Id
    send_splits: list[Id]
    recv_splits: list[Id]


class SectorsEntry(GraphEntry):
    """An event of a folder of sectors."""

    nodes: Id
    edges: Id
    parts: Id = Field(ge=1)
    sectors: list[SectorEntry]
    quality: CutQuality | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if len(self.sectors) != self.parts:
            raise ValueError(f"parts is {self.parts}, but there are {len(self.sectors)} sectors")
        for number, sector in enumerate(self.sectors):
            if not len(sector.send_splits) == len(sector.recv_splits) == self.parts:
                raise ValueError(f"the splits of sector {number} are not one for each part")
            if sum(sector.recv_splits) != sector.halo:
                raise ValueError(
                    f"recv_splits of sector {number} are not its {sector.halo} halo rows"
                )
        if sum(sector.owned for sector in self.sectors) != self.nodes:
            raise ValueError(f"the sectors do not own the event's {self.nodes} nodes")
        # Merging allocates a row for each node; each has its id in the file.
        if self.nodes > self.bytes:
            raise ValueError(f"{self.bytes} bytes hold no {self.nodes} nodes")
        return self
