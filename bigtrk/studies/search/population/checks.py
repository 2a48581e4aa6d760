"""Checks of the settings that a population can be trained with."""

from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.studies.search.space import Choices, Space
from bigtrk.training.settings import Configuration

# Of the settings that a resumed run may change, those that change what it learns.
CHANGED = ("optimizer.", "training.spike_")
SCHEDULE, OPTIMIZER = "optimizer.schedule", "optimizer.name"
FEWEST = 2  # trials


def check_population(file: Path, space: Space, configuration: Configuration, trials: int) -> None:
    """Checks that trials of a population can go on with each other's settings.

    Raises:
        InputError: they cannot.
    """
    assert space.population is not None
    for key in space.settings:
        if not key.startswith(CHANGED) or key == OPTIMIZER:
            raise InputError(
                f"{file}: space.{key}: a population changes settings of trainings that go on, "
                f"{', '.join(f'{prefix}*' for prefix in CHANGED)} but {OPTIMIZER}; leave out the "
                f"key, or the population"
            )
    schedules = space.settings.get(SCHEDULE)
    chosen = schedules.values if isinstance(schedules, Choices) else ()
    if "cosine" in (configuration.optimizer.schedule, *chosen):
        raise InputError(
            f"{SCHEDULE}=cosine: falls to the end of a training, which a population does not know "
            f"in its rounds; choose constant or plateau"
        )
    epochs, every = configuration.training.epochs, space.population.every
    if epochs % every:
        raise InputError(
            f"training.epochs={epochs}: is no multiple of population.every={every}; correct one"
        )
    if trials < FEWEST:
        raise InputError(f"--trials {trials}: a population has at least {FEWEST}; raise it")
    if configuration.training.minutes is not None:
        raise InputError(
            "training.minutes: a population trains its rounds to their end; leave it out"
        )
