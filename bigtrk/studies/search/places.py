"""The places where trials train at the same time: shares of this host, its cores and accelerators.

Places of a cluster, which Ray chooses, are in `ray_places.py`.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bigtrk.disk.files import open_to_append
from bigtrk.errors import InputError
from bigtrk.studies.launch import on_cores

DEVICES = "CUDA_VISIBLE_DEVICES"


class Process(Protocol):
    """A training that was started in a place."""

    def poll(self) -> int | None:
        """Returns a number once it has ended; None until then."""

    def terminate(self) -> None:
        """Asks it to save and end."""


class Place(Protocol):
    """A place for one training at a time."""

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Process:
        """Starts a training in this folder; its output goes to the end of `log`.

        Raises:
            InputError: `log` is a symbolic link.
        """


@dataclass(frozen=True)
class HostPlace:
    """A share of a host: so many `cores` from the `first` on, and `devices`, if there are any."""

    first: int
    cores: int
    devices: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """Returns what a training's environment has beside this process's."""
        return {DEVICES: ",".join(self.devices)} if self.devices else {}

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """Starts a training as a process of this host, `Place.start`."""
        # A session of its own: Ctrl-C is for the searcher, which asks the training to save.
        with open_to_append(log) as output, on_cores(self.cores, self.first):
            return subprocess.Popen(
                command,
                env={**environment, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def share_host(places: int, ranks: int, devices: Sequence[str]) -> list[HostPlace]:
    """Shares this process's cores, and the accelerators `devices`, among so many places of `ranks`
    ranks each.

    Raises:
        InputError: there are fewer of them than places.
    """
    cores = len(os.sched_getaffinity(0))
    each, cores_each = len(devices) // places, cores // places
    if not cores_each or (devices and each < 1):
        there = f"{len(devices)} accelerators" if devices else f"{cores} cores"
        raise InputError(
            f"--at-once {places}: this host has {there} for {places} trials of {ranks} "
            f"rank{'s' if ranks > 1 else ''} each; lower it"
        )
    return [
        HostPlace(i * cores_each, cores_each, tuple(devices[i * each : (i + 1) * each]))
        for i in range(places)
    ]


def visible_devices() -> list[str]:
    """Lists the accelerators of this process, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    named = os.environ.get(DEVICES)
    if named is not None and torch.cuda.is_available():
        return [name for name in named.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]
