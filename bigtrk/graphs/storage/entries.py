"""The entries of a manifest, checked for all who plan with an event before its file is read."""

from collections.abc import Iterable
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, FiniteFloat, model_validator

from bigtrk.config import Settings
from bigtrk.graphs.storage.sector_sums import MODULUS, event_sums

Count = Annotated[int, Field(ge=0, lt=2**40)]
Id = Annotated[int, Field(ge=0, lt=2**31)]  # in sectors, where ids are stored in 32 bits
Sum = Annotated[int, Field(ge=0, lt=MODULUS)]
Share = Annotated[FiniteFloat, Field(ge=0)]
Digests = dict[str, str]
_ENTRY = ConfigDict(extra="ignore", frozen=True, strict=True)


class GraphEntry(Settings):
    """An event of a folder of graphs; keys that are not listed here are free for anybody."""

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
    """The quality of a cut, as far as predictions use it."""

    model_config = _ENTRY

    cut_fraction: Share
    halo_fraction: Share
    edge_imbalance: Share


class SectorSums(Settings):
    """The sums over a sector's ids (sector_sums.py)."""

    model_config = _ENTRY

    own_edges: Sum
    node_ids: Sum
    node_squares: Sum
    edge_ids: Sum
    edge_squares: Sum
    halo: Sum
    cut: Sum


# For each sum, what the sectors fail to do if it does not add up.
_FAILED = {
    "own_edges": "own each of the event's edges once",
    "node_ids": "own each of the event's nodes once",
    "node_squares": "own each of the event's nodes once",
    "edge_ids": "own each of the event's edges once",
    "edge_squares": "own each of the event's edges once",
    "halo": "send each other the nodes that they expect",
    "cut": "hold the same cut edges",
}


class SectorEntry(Settings):
    """The counts of one sector; splits are by the other part."""

    model_config = _ENTRY

    owned: Id
    halo: Id
    edges: Id
    send_splits: list[Id]
    recv_splits: list[Id]
    sums: SectorSums


class SectorsEntry(GraphEntry):
    """An event of a folder of sectors."""

    nodes: Id
    edges: Id
    parts: Id = Field(ge=1)
    labels: list[str]
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
        self._check_exchange()
        self._check_sums()
        return self

    def _check_exchange(self) -> None:
        """Checks that a sector sends what the others expect; gloo ends the processes otherwise."""
        sent = _matrix(sector.send_splits for sector in self.sectors)
        received = _matrix(sector.recv_splits for sector in self.sectors)
        differ = np.argwhere(sent != received.T)
        if len(differ):
            a, b = differ[0].tolist()
            raise ValueError(
                f"sector {a} sends {sent[a, b]} rows to sector {b}, which expects {received[b, a]}"
            )
        to_itself = np.flatnonzero(sent.diagonal())
        if len(to_itself):
            raise ValueError(f"sector {to_itself[0]} sends rows to itself")

    def _check_sums(self) -> None:
        for name, expected in event_sums(self.nodes, self.edges).items():
            found = sum(getattr(sector.sums, name) for sector in self.sectors)
            if found % MODULUS != expected:
                raise ValueError(f"the sectors do not {_FAILED[name]} (sum {name!r})")


def _matrix(splits: Iterable[list[int]]) -> NDArray[np.int64]:
    return np.array(list(splits), np.int64)
