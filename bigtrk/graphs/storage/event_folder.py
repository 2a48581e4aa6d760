"""The common part of folders of graphs and of sectors: a manifest, and one file per event."""

from pathlib import Path
from typing import Any, ClassVar

from bigtrk.config import parse
from bigtrk.disk.files import by_numbers
from bigtrk.errors import InputError
from bigtrk.graphs.checks import PARTICLES, check_particles
from bigtrk.graphs.event_graph import ParticleTable
from bigtrk.graphs.storage.entries import GraphEntry
from bigtrk.graphs.storage.manifest import MANIFEST, describe, file_of, read_manifest
from bigtrk.graphs.storage.tensor_files import Section, SectionFile


class EventFolder:
    """The files of many events.

    events: the names, ascending. manifest: the content of manifest.json.

    Raises:
        InputError: the folder is missing, holds something else, or has a damaged manifest.
    """

    kind: ClassVar[str]  # in the manifest
    entry: ClassVar[type[GraphEntry]]
    maker: ClassVar[str]  # the command that fills such a folder, with {path} for it

    def __init__(self, path: Path) -> None:
        kind, self.manifest = read_manifest(path)
        if kind != self.kind:
            made = self.maker.format(path="OUT")
            raise InputError(f"{path}: holds {kind}, not {self.kind}, which '{made}' makes")
        self.path = path
        for event, entry in self.manifest["events"].items():
            self._check(event, entry)
        self.events = sorted(self.manifest["events"], key=by_numbers)

    def _check(self, event: str, entry: dict[str, Any]) -> None:
        where = f"{self.path / MANIFEST}, event {event!r}"
        remedy = f"remove {MANIFEST} and finish '{self.maker.format(path=self.path)}'"
        try:
            described = parse(self.entry, entry, where)
        except InputError as error:
            raise InputError(f"{error}; {remedy}") from None
        if described.event != event:
            raise InputError(f"{where}: describes {described.event!r}; {remedy}")

    def record(self, event: str) -> dict[str, Any]:
        """Returns the manifest's entry of `event`.

        Raises:
            InputError: the folder has no such event.
        """
        if event not in self.manifest["events"]:
            made = self.maker.format(path=self.path)
            raise InputError(
                f"{self.path}: has no event {event!r}; make it with '{made}', or name another"
            )
        found: dict[str, Any] = self.manifest["events"][event]
        return found

    def open(self, event: str) -> SectionFile:
        """Opens the file of `event`.

        Raises:
            InputError: there is no such event, its file is damaged, or it is not the file that
                the manifest describes.
        """
        described = self.record(event)
        opened = SectionFile(file_of(self.path, event))
        if describe(opened) != described:
            raise InputError(
                f"{opened.path}: is not the file that the manifest describes; finish "
                f"'{self.maker.format(path=self.path)}' with its former options"
            )
        return opened


def particle_sections(particles: ParticleTable | None) -> dict[str, Section]:
    """Returns the section "particles" of an event's file, none where they are unknown."""
    if particles is None:
        return {}
    return {"particles": {name: getattr(particles, name) for name in PARTICLES}}


def read_particles(opened: SectionFile) -> ParticleTable | None:
    """Reads the event's particles, None where its file has none."""
    if "particles" not in opened.digests:
        return None
    content = opened.read("particles")
    check_particles(content, f"{opened.path}, particles")
    return ParticleTable(**content)
