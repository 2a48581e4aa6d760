"""Energy of a host's processors and memory, from the counters of Linux's powercap (RAPL)."""

from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass
class _Counter:
    """A counter of microjoules that starts again from zero above `most`."""

    path: Path
    most: int
    last: int

    def advance(self) -> int:
        """Returns the microjoules since the last call, if it has started again at most once."""
        now = _number(self.path)
        passed = now - self.last if now >= self.last else now + self.most - self.last
        self.last = now
        return passed


class HostEnergy:
    """The packages of a host and, where they are counted, their memory.

    A package of 200 W starts again every 20 minutes: ask more often.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        """Finds the counters.

        Raises:
            LookupError: there are no counters, or they are not this user's to read.
        """
        domains = [path for path in sorted(root.glob("intel-rapl:*")) if _counts(path)]
        if not domains:
            raise LookupError("the host has no RAPL counters")
        try:
            self._counters = [
                _Counter(path / "energy_uj", _number(path / "max_energy_range_uj"), 0)
                for path in domains
            ]
            self.take()
        except OSError as error:
            raise LookupError(f"RAPL: {error.filename}: {error.strerror}") from None

    def take(self) -> float:
        """Returns the joules since the last call."""
        return sum(counter.advance() for counter in self._counters) / 1e6


def _counts(domain: Path) -> bool:
    """Says whether a domain adds to the sum: cores lie in their package, psys holds all others."""
    name = (domain / "name").read_text().strip()
    return name.startswith("package") or name == "dram"


def _number(path: Path) -> int:
    return int(path.read_text())
