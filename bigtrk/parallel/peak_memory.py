"""The largest memory of a rank: its device's, on a CPU that of its process."""

import resource
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_TOLD = ("VmHWM:", "RssFile:", "RssAnon:")  # in it


class PeakMemory:
    """Follows the largest memory of this process without the pages of files, or that of its GPU.

    Pages of libraries (0.2 GB) are there once for all ranks of a host, and the system drops what it
    needs elsewhere: with them the same process took 350 to 441 MiB in one day, without 246.0 to
    246.3. The kernel tells the peak with them alone, so their bytes at that moment are to be known:
    those of the graphs that a step maps are 13 MiB of 305 with 80,000 edges, and gone at its end.
    Where the system has dropped pages of files, the process may grow by as much without a peak of
    both: what it has at a look counts as well. Where `status` does not tell (gVisor's) they are in.
    """

    def __init__(self, device: torch.device, status: Path = _STATUS) -> None:
        self._device, self._status = device, status
        self._highest = self._own = 0

    def look(self) -> None:
        """Notes a new peak. Call it near it, while what was mapped then still is."""
        if self._device.type == "cuda":
            return
        lines = (line.split() for line in self._status.read_text().splitlines())
        known = {line[0]: int(line[1]) * 1024 for line in lines if line[0] in _TOLD}
        if len(known) < len(_TOLD):
            self._own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            return
        self._own = max(self._own, known["RssAnon:"])
        if known["VmHWM:"] > self._highest:
            self._highest = known["VmHWM:"]
            self._own = max(self._own, self._highest - known["RssFile:"])

    @property
    def n_bytes(self) -> int:
        """Returns the largest memory so far in bytes."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        self.look()
        return self._own
