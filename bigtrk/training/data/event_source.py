"""The events of a run: folders, sizes, and the split into training and validation."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bigtrk.cost.event_size import EventSize, event_size
from bigtrk.disk.files import by_numbers
from bigtrk.errors import InputError, number_of, one_line
from bigtrk.graphs.event_graph import Sector, whole_sector
from bigtrk.graphs.features import available, available_edges
from bigtrk.graphs.storage.event_folder import ORIGIN, GraphFolder, graph_of, read_manifest
from bigtrk.graphs.storage.sector_folder import SectorFolder
from bigtrk.records.run import DataRecord
from bigtrk.user_code import names_code


@dataclass(frozen=True)
class EventSource:
    """One event on disk, stored in `parts` sectors (1: a whole graph)."""

    name: str
    parts: int
    folder: GraphFolder | SectorFolder

    @property
    def record(self) -> dict[str, Any]:
        return self.folder.record(self.name)

    @property
    def size(self) -> EventSize:
        """Returns the event's numbers of nodes and edges, whole and by sector."""
        return event_size(self.record)

    @property
    def where(self) -> str:
        """Returns "NAME in FOLDER", for messages."""
        return f"{self.name} in {self.folder.path}"

    @property
    def identity(self) -> str:
        """Returns the digest of the event's graph; InputError if the manifest has none."""
        digests = self.record.get("source_digests", self.record["digests"])
        if "graph" not in digests:
            raise InputError(
                f"{self.where}: the manifest does not say from which graph it was cut; cut its "
                "graph again with 'python -m partition'"
            )
        return str(digests["graph"])

    @property
    def origin(self) -> str:
        """Returns a digest of the event behind the graph, the same for all ways to build it."""
        source = self.record.get("made_from", {}).get("source", self.identity)
        return str(self.record.get(ORIGIN, source))

    @property
    def edge_features(self) -> list[str]:
        """Lists the edge features that are stored, or can be computed from positions."""
        return available_edges(self.record["edge_feature_names"], self.record["node_feature_names"])

    def check(
        self, node_features: Sequence[str], edge_features: Sequence[str], with_pt: bool
    ) -> None:
        """Raises InputError if the event lacks a feature, truth or (with_pt) the particles' pT."""
        record = self.record
        for kind, chosen, known in (
            ("node", node_features, available(record["node_feature_names"])),
            ("edge", edge_features, self.edge_features),
        ):
            absent = [name for name in chosen if not names_code(name) and name not in known]
            if absent:
                choose = f"choose from {one_line(', '.join(known))}"
                raise InputError(
                    f"{self.where}: has no {kind} feature {absent[0]!r}; "
                    f"{choose if known else f'set data.{kind}_features=[]'}, or name a function "
                    f"of your own as package.module:function"
                )
        if record["edges"] and record.get("purity", 0) is None:
            raise InputError(
                f"{self.where}: was built from hits alone; training needs truth, so build it from "
                f"events with truth"
            )
        if with_pt and "particles" not in record["digests"]:
            raise InputError(
                f"{self.where}: has no particles, so pT is unknown; set training.pt_weight=0, or "
                "build it from events with truth"
            )

    def check_true_edges(self) -> None:
        """Raises InputError if the event is cut in sectors, or has an edge that is not true."""
        if self.parts > 1:
            raise InputError(
                f"{self.where}: is cut into sectors, but an embedding trains on whole events; "
                "name their graphs"
            )
        if self.record["edges"] and self.record.get("purity") != 1:
            raise InputError(
                f"{self.where}: has edges that are not true; an embedding trains on graphs of "
                "'bigtrk build EVENTS OUT --true-edges'"
            )

    def read(self, part: int, parts: int) -> Sector:
        """Reads sector number `part` of the event cut in `parts`."""
        return self.read_several([part], parts)[0]

    def read_several(self, numbers: Sequence[int], parts: int) -> list[Sector]:
        """Reads the sectors `numbers` of the event cut in `parts`; opens its file once."""
        if isinstance(self.folder, SectorFolder):
            return self.folder.read_several(self.name, numbers, parts)
        assert parts == 1, "a whole graph is read in one part"
        opened = self.folder.open(self.name)
        return [whole_sector(graph_of(opened), opened.known) for _ in numbers]


def open_events(folders: Sequence[Path]) -> list[EventSource]:
    """Lists the events of all folders by name; an event that several hold counts once, in most
    sectors. Raises InputError if a folder has no events, or two have different graphs of one name.
    """
    sources: dict[str, EventSource] = {}
    for source in (source for folder in folders for source in _open_folder(folder)):
        known = sources.setdefault(source.name, source)
        if known.identity != source.identity:
            raise InputError(
                f"{source.name}: {known.folder.path} and {source.folder.path} hold different "
                f"graphs of this name; {_remedy(known, source)}, or leave one folder out"
            )
        if known.parts < source.parts:
            sources[source.name] = source
    if not sources:
        raise InputError(
            f"{', '.join(map(str, folders))}: no events; make some with 'bigtrk build'"
        )
    return [sources[name] for name in sorted(sources, key=by_numbers)]


def _remedy(one: EventSource, other: EventSource) -> str:
    """Advises what to do about two different graphs of one name."""
    if one.origin == other.origin:
        return "cut the event again with 'python -m partition'"
    return (
        f"two events have this name, so build the graphs in {str(other.folder.path)!r} again "
        f"under other names, as 'bigtrk build EVENTS OUT --prefix b-' does"
    )


def _open_folder(path: Path) -> list[EventSource]:
    kind, _ = read_manifest(path)
    if kind == "graphs":
        graphs = GraphFolder(path)
        return [EventSource(name, 1, graphs) for name in graphs.events]
    sectors = SectorFolder(path)
    return [EventSource(name, sectors.parts(name), sectors) for name in sectors.events]


def split_validation(
    train: Sequence[Path], validation: int | Sequence[Path], events: int | None = None
) -> tuple[list[EventSource], list[EventSource]]:
    """Returns training and validation events; InputError if too few, or an event is in both."""
    sources = open_events(train)
    if isinstance(validation, int):
        if not 0 <= validation < len(sources):
            raise InputError(
                f"data.validation={validation}: must leave some of "
                f"{number_of(len(sources), 'event')} to train on; lower it (0: no validation), or "
                f"add events to data.train"
            )
        cut = len(sources) - validation
        sources, held = sources[:cut], sources[cut:]
    else:
        held, trained = open_events(validation), {source.name: source for source in sources}
        for source in held:
            if other := trained.get(source.name):
                same = other.origin == source.origin
                remedy = "name folders of other events" if same else _remedy(other, source)
                raise InputError(f"data.validation: {source.name} is also in data.train; {remedy}")
    if events is not None and events > len(sources):
        raise InputError(
            f"data.events={events}: data.train has only {number_of(len(sources), 'event')} besides "
            f"those for validation; lower data.events, or add a folder"
        )
    return sources[:events], held


@dataclass(frozen=True)
class Events:
    """The events of a run, to train on and to validate on."""

    train: list[EventSource]
    validation: list[EventSource]

    @property
    def fingerprint(self) -> str:
        """Returns the number of events, and a digest of their names, contents and cuts, as text."""
        records = [(event.name, event.record) for event in (*self.train, *self.validation)]
        facts = repr([(name, one["digests"], one.get("sectors")) for name, one in records])
        return f"{len(records)} events of digest {hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    @property
    def training_digest(self) -> str:
        """Returns a digest of the training events' names and graphs, whatever their cuts."""
        facts = repr([(event.name, event.identity) for event in self.train])
        return hashlib.sha256(facts.encode()).hexdigest()


def data_record(events: Events) -> DataRecord:
    """Makes the record of the data: counts, the files' formats, mean efficiencies if known."""
    records = [source.record for source in events.train]

    def mean(share: str) -> float | None:
        found = [record.get(share) for record in records]
        known = [one for one in found if isinstance(one, float | int) and 0 <= one <= 1]
        return fmean(known) if known and len(known) == len(found) else None

    return DataRecord(
        train_events=len(records),
        validation_events=len(events.validation),
        nodes=sum(record["nodes"] for record in records),
        edges=sum(record["edges"] for record in records),
        sources=tuple(sorted({_source(record.get("made_from")) for record in records} - {""})),
        edge_efficiency=mean("edge_efficiency"),
        target_efficiency=mean("target_efficiency"),
    )


def _source(made_from: object) -> str:
    """Returns the format of the files behind a graph; "" if unknown."""
    # Graphs that were built of other graphs name these as `graphs`, with their own origin.
    while isinstance(made_from, Mapping) and isinstance(made_from.get("graphs"), Mapping):
        made_from = made_from["graphs"]
    found = made_from.get("from") if isinstance(made_from, Mapping) else None
    return one_line(found) if isinstance(found, str) and found != "graphs" else ""
