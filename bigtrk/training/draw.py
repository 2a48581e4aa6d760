"""A step draws at random, the same of an event on whichever rank."""

from dataclasses import dataclass

import numpy as np

from bigtrk.training.data.batch import Batch


@dataclass(frozen=True)
class Draw:
    """The run's seed and the step's number decide what is drawn."""

    seed: int
    step: int

    def generator(self, batch: Batch) -> np.random.Generator:
        """Makes the generator of a batch, the same on whichever rank."""
        event = batch.event or 0
        return np.random.default_rng((self.seed, self.step, event, batch.sector.part))
