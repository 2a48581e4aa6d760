"""bigtrk trains track-finding graph networks on event graphs too large for one device.

`__all__` names the interface for scripts and notebooks, documented in `bigtrk.api`; everything
else is private. It is imported when it is first asked for, since torch takes seconds.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigtrk.api import (
        Configuration,
        Event,
        EventGraph,
        Graphs,
        Sector,
        TrainedModel,
        build_graph,
        build_graphs,
        build_tracks,
        configure,
        load_model,
        open_graphs,
        partition,
        read_event,
        simulate,
        train,
        write_graphs,
    )

# By default waiting threads of GNU OpenMP spin for milliseconds before they sleep. On two cores
# with a load of 5, an epoch took 8 s with 10,000 spins, fewer than the default, and 3 s with 1,000;
# on idle cores 1.4 s with both. OpenMP reads the variable when torch is loaded, hence here. Worker
# processes and trainings started from here inherit it.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "1000"

__version__ = "0.2.0"
__all__ = [
    "Configuration",
    "Event",
    "EventGraph",
    "Graphs",
    "Sector",
    "TrainedModel",
    "build_graph",
    "build_graphs",
    "build_tracks",
    "configure",
    "load_model",
    "open_graphs",
    "partition",
    "read_event",
    "simulate",
    "train",
    "write_graphs",
]


def __getattr__(name: str) -> Any:
    """Imports the interface when one of its names is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("bigtrk.api"), name)


def __dir__() -> list[str]:
    """Lists the names of the interface, without importing it, for completion."""
    return sorted({*globals(), *__all__})
