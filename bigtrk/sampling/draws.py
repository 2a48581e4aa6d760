"""Random numbers that depend on what they are drawn for, not on when: all engines draw the same.

A draw is a hash of (seed, epoch, root, counter). The counter runs along the walk from the root:
`fanout` numbers for each step, in the walk's order. So a root's subgraph depends on no other root,
batch, rank, thread, device or engine. Its 64 bits are held in int64, which wraps.
"""

import numpy as np
import torch
from torch import Tensor

from bigtrk.disk.hashing import GOLDEN, mixed, shifted

# The seed of a run, or of an event in it.
Seed = int | tuple[int, int]


def epoch_key(seed: Seed, epoch: int) -> int:
    """Returns the 64 bits that all draws of an epoch share."""
    return int(np.random.SeedSequence(entropy(seed, epoch)).generate_state(1, np.uint64)[0])


def entropy(seed: Seed, epoch: int) -> tuple[int, ...]:
    """Returns the seed of numpy's generators in an epoch."""
    return (*seed, epoch) if isinstance(seed, tuple) else (seed, epoch)


def drawn(key: Tensor | int, counter: Tensor) -> Tensor:
    """Draws 64 random bits for each pair of key and counter (SplitMix64)."""
    return mixed(key + GOLDEN * (counter + 1))


def below(bits: Tensor, n: Tensor) -> Tensor:
    """Draws integers from 0 to n - 1, n <= 2**31; their odds differ by at most n / 2**32."""
    return (shifted(bits, 32) * n) >> 32


def distinct_below(n: Tensor, size: int, key: Tensor, counter: Tensor) -> Tensor:
    """Draws `size` distinct integers below each n > size, any set as likely: [M] -> [M, size].

    Floyd's algorithm (doi:10.1145/30401.315746). `counter` is the first of each row's draws.
    """
    size = size if len(n) else 0  # it may be huge where no node has so many edges
    picks = n.new_empty((len(n), size))
    for k in range(size):
        last = n - size + k
        pick = below(drawn(key, counter + k), last + 1)
        taken = (picks[:, :k] == pick[:, None]).any(dim=1)
        picks[:, k] = torch.where(taken, last, pick)
    return picks
