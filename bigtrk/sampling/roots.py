"""The roots of each mini-batch: a function of (seed, epoch) alone."""

import numpy as np

from bigtrk.errors import InputError
from bigtrk.sampling.draws import Seed, entropy
from bigtrk.sampling.subgraphs import Rows


def epoch_roots(
    n_nodes: int, batch_size: int, seed: Seed, epoch: int, rank: int = 0, ranks: int = 1
) -> list[Rows]:
    """Returns this rank's roots in each mini-batch of an epoch, shuffled.

    `batch_size` roots are shared out among all ranks, so a step does not depend on their number.
    Every node is a root exactly once. The last mini-batch has the rest; every rank has the same
    number of mini-batches, with no roots where there are fewer roots than ranks.

    Raises:
        InputError: batch_size is below 1.
    """
    if batch_size < 1:
        raise InputError(f"sampling batch_size={batch_size}: must be 1 or more")
    order = np.random.default_rng(entropy(seed, epoch)).permutation(n_nodes)
    return [order[i : i + batch_size][rank::ranks] for i in range(0, n_nodes, batch_size)]
