"""Random numbers that depend on what they are drawn for, not on when: both engines draw the same.

A draw is a hash of (seed, epoch, root, counter). The counter is that of the walk from the root:
`fanout` numbers for each step of the walk, in the order of the walk. So a root's subgraph depends
on no other root, batch, rank, thread or engine.
"""

import numpy as np
from numpy.typing import NDArray

# Of a run, or of an event in it.
Seed = int | tuple[int, int]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def epoch_key(seed: Seed, epoch: int) -> int:
    """The 64 bits that all draws of an epoch share."""
    return int(np.random.SeedSequence(entropy(seed, epoch)).generate_state(1, np.uint64)[0])


def entropy(seed: Seed, epoch: int) -> tuple[int, ...]:
    """What numpy's generators of an epoch are seeded with."""
    return (*seed, epoch) if isinstance(seed, tuple) else (seed, epoch)


def drawn(key: NDArray[np.uint64], counter: NDArray[np.int64]) -> NDArray[np.uint64]:
    """64 random bits for each pair of key and counter (SplitMix64, doi:10.1145/2714064.2660195)."""
    bits = key + GOLDEN * (counter.astype(np.uint64) + np.uint64(1))
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return mixed


def below(bits: NDArray[np.uint64], n: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integers from 0 to n - 1, n < 2**32; unequal by at most n / 2**32."""
    return (((bits >> np.uint64(32)) * n.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def distinct_below(
    n: NDArray[np.int64], size: int, key: NDArray[np.uint64], counter: NDArray[np.int64]
) -> NDArray[np.int64]:
    """`size` distinct integers below each n > size, every set as likely: [M] -> [M, size].

    Floyd's algorithm (doi:10.1145/30401.315746). `counter` is the first of each row's draws.
    """
    size = size if len(n) else 0  # it may be huge where no node has so many edges
    picks = np.empty((len(n), size), np.int64)
    for k in range(size):
        last = n - size + k
        pick = below(drawn(key, counter + k), last + 1)
        taken = (picks[:, :k] == pick[:, None]).any(axis=1)
        picks[:, k] = np.where(taken, last, pick)
    return picks
