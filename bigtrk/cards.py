"""The reasons why GPUs of this host are not used well: a line each, for `bigtrk doctor` and at the
start of a training. Each says what to do.
"""

import os
import socket
from collections.abc import Sequence
from typing import NamedTuple

import torch

LOWEST_CAPABILITY = 8, 0
# Less than this is filled by the edges of a usual event at the default width.
LEAST_BYTES = 8 * 2**30
_LOOPBACK = "lo"


class Card(NamedTuple):
    """A GPU: its name, compute capability and bytes of memory."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int


def problems(several_hosts: bool | None = None) -> dict[str, str]:
    """Returns a line for each problem of the GPUs that torch sees, or of the driver where it sees
    none, by its topic; several_hosts: ranks of other hosts take part, if that is known.
    """
    if not torch.cuda.is_available():
        version = getattr(torch._C, "_cuda_getDriverVersion", lambda: 0)
        found = {"driver": old_driver(version(), torch.version.cuda)}
    else:
        cards = [_card(i) for i in range(torch.cuda.device_count())]
        interfaces = [name for _, name in socket.if_nameindex()]
        chosen = os.environ.get("NCCL_SOCKET_IFNAME")
        found = {
            "capability": plain_cards(cards),
            "memory": small_cards(cards),
            "network": no_network(chosen, interfaces, several_hosts),
        }
    return {topic: text for topic, text in found.items() if text}


def takes_plain_passes(device: torch.device) -> bool:
    """Says whether a GPU of this host has no compiled passes: it is too old, or not NVIDIA's."""
    if not torch.cuda.is_available():
        return False
    return _is_other() or _card_of(device).capability < LOWEST_CAPABILITY


def plain_cards(cards: Sequence[Card]) -> str | None:
    """Names the GPUs that have plain passes, if any."""
    if _is_other():
        named = ", ".join(dict.fromkeys(card.name for card in cards))
        return f"passes over edges are plain, and slower, on {named}: compiled ones are NVIDIA's"
    old = [card for card in cards if card.capability < LOWEST_CAPABILITY]
    if not old:
        return None
    named = ", ".join(dict.fromkeys(f"{card.name} ({_dotted(card.capability)})" for card in old))
    return (
        f"passes over edges are plain, and slower, on {named}: compiled ones need compute "
        f"capability {_dotted(LOWEST_CAPABILITY)}"
    )


def small_cards(cards: Sequence[Card]) -> str | None:
    """Says how much memory the smallest GPU has where it is little."""
    smallest = min(cards, key=lambda card: card.memory_bytes)
    if smallest.memory_bytes >= LEAST_BYTES:
        return None
    gib = smallest.memory_bytes / 2**30
    return (
        f"{smallest.name} has {gib:.1f} GiB, in which few events fit whole: bigtrk plan --memory "
        f"{gib:.1f} says how many sectors do"
    )


def old_driver(version: int, cuda: str | None) -> str | None:
    """Says that the driver, of CUDA 1000 major + 10 minor, is older than torch's CUDA; 0: none."""
    if cuda is None or not version or version // 1000 >= int(cuda.partition(".")[0]):
        return None
    driver = f"{version // 1000}.{version % 1000 // 10}"
    return (
        f"torch is built for CUDA {cuda}, and the driver knows CUDA {driver} at most, so no GPU is "
        f"used: update the driver, or install torch for CUDA {driver[: driver.index('.')]}"
    )


def no_network(
    chosen: str | None, interfaces: Sequence[str], several_hosts: bool | None
) -> str | None:
    """Says that NCCL finds no network among `interfaces`; chosen: NCCL_SOCKET_IFNAME."""
    if chosen and not any(_matches(chosen, name) for name in interfaces):
        return (
            f"NCCL_SOCKET_IFNAME={chosen} names no network interface of this host, which has "
            f"{', '.join(interfaces)}: unset it, or name one of these"
        )
    if several_hosts is False or set(interfaces) - {_LOOPBACK}:
        return None
    missed = "does not reach the" if several_hosts else "would not reach ranks of"
    return (
        f"this host has no network interface but the loopback, so NCCL {missed} other hosts: give "
        f"the job or the container the host's network"
    )


def _is_other() -> bool:
    """Says whether GPUs are AMD's: torch for ROCm calls them cuda, too. Their capability is that of
    another scale, their warps are of 64 threads, and no kernel here was compiled for them.
    """
    return torch.version.hip is not None


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def _matches(chosen: str, interface: str) -> bool:
    """Says whether NCCL takes an interface: by beginnings of names, whole ones after "=", and all
    but those after "^".
    """
    others = chosen.startswith("^")
    names = chosen.removeprefix("^")
    whole = names.startswith("=")
    listed = [name for name in names.removeprefix("=").split(",") if name]
    found = interface in listed if whole else interface.startswith(tuple(listed))
    return found != others


def _card_of(device: torch.device) -> Card:
    return _card(torch.cuda.current_device() if device.index is None else device.index)


def _card(index: int) -> Card:
    found = torch.cuda.get_device_properties(index)
    return Card(found.name, (found.major, found.minor), found.total_memory)
