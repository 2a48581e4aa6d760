"""The places of a host where trials train at the same time: its cores and accelerators, shared."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from bigtrk.errors import InputError

DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Place:
    """A share of a host: so many `cores` from the `first` on, and `devices`, if there are any."""

    first: int
    cores: int
    devices: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """Returns what a training's environment has beside this process's."""
        return {DEVICES: ",".join(self.devices)} if self.devices else {}


def share_host(places: int, ranks: int, devices: Sequence[str]) -> list[Place]:
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
        Place(i * cores_each, cores_each, tuple(devices[i * each : (i + 1) * each]))
        for i in range(places)
    ]


def visible_devices() -> list[str]:
    """Lists the accelerators of this process, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    named = os.environ.get(DEVICES)
    if named is not None and torch.cuda.is_available():
        return [name for name in named.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]
