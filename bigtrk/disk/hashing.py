"""Hashes of integers: 64 bits each, held in int64, which wraps."""

from torch import Tensor


def signed(bits: int) -> int:
    """Returns the int64 that has these 64 bits."""
    return bits - 2**64 if bits >= 2**63 else bits


GOLDEN = signed(0x9E3779B97F4A7C15)


def mixed(bits: Tensor) -> Tensor:
    """Mixes each of `bits`, int64, one to one (SplitMix64, doi:10.1145/2714064.2660195)."""
    bits = (bits ^ shifted(bits, 30)) * signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ shifted(bits, 27)) * signed(0x94D049BB133111EB)
    result: Tensor = bits ^ shifted(bits, 31)
    return result


def shifted(bits: Tensor, places: int) -> Tensor:
    """Shifts bits to the right by `places`, filling with zeros, not with the sign."""
    result: Tensor = (bits >> places) & (2 ** (64 - places) - 1)
    return result
