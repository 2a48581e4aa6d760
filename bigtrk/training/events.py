"""The events of a run, and digests that tell one run's from another's."""

import hashlib
from dataclasses import dataclass

from bigtrk.training.event_source import EventSource


@dataclass(frozen=True)
class Events:
    """The events of a run."""

    train: list[EventSource]
    validation: list[EventSource]

    @property
    def fingerprint(self) -> str:
        """The number of events and a digest of their names, contents and cuts."""
        events = [*self.train, *self.validation]
        facts = repr([(event.name, event.identity, event.parts) for event in events])
        return f"{len(events)} events of digest {hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    @property
    def training_digest(self) -> str:
        """A digest of what decides the order of training: names and contents, not cuts."""
        facts = repr([(event.name, event.identity) for event in self.train])
        return hashlib.sha256(facts.encode()).hexdigest()
