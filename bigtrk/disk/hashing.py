"""Hashes integers: 64 bits each, held in int64, which wraps."""

from torch import Tensor


def signed(bits: int) -> int:
    """Returns the int64 with the same 64 bits as `bits`."""
    return bits - 2**64 if bits >= 2**63 else bits


GOLDEN = signed(0x9E3779B97F4A7C15)


def mixed(bits: Tensor) -> Tensor:
    """Returns a bijective hash of int64 `bits` (SplitMix64, doi:10.1145/2714064.2660195)."""
    bits = (bits ^ shifted(bits, 30)) * signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ shifted(bits, 27)) * signed(0x94D049BB133111EB)
    result: Tensor = bits ^ shifted(bits, 31)
    return result


def shifted(bits: Tensor, places: int) -> Tensor:
    """Shifts int64 `bits` right by `places`, and fills with zeros instead of the sign."""
    result: Tensor = (bits >> places) & (2 ** (64 - places) - 1)
    return result
