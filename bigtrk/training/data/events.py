"""The events of a run, and digests that tell one run's from another's."""

import hashlib
from dataclasses import dataclass

from bigtrk.training.data.event_source import EventSource


@dataclass(frozen=True)
class Events:
    """The events of a run."""

    train: list[EventSource]
    validation: list[EventSource]

    @property
    def fingerprint(self) -> str:
        """Returns the number of events and a digest of their names, contents and cuts.

        Ranks that hold other cuts of an event, each in itself good, would exchange other rows.
        """
        records = [(event.name, event.record) for event in [*self.train, *self.validation]]
        facts = repr([(name, one["digests"], one.get("sectors")) for name, one in records])
        return f"{len(records)} events of digest {hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    @property
    def training_digest(self) -> str:
        """Returns a digest of what decides the order of training: names and contents, not cuts."""
        facts = repr([(event.name, event.identity) for event in self.train])
        return hashlib.sha256(facts.encode()).hexdigest()
