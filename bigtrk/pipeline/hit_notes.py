"""Notes on events that lack hits, or whose hits are in modules that are not known.

Shapes: N hits, M modules.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigtrk.console import complain
from bigtrk.errors import InputError
from bigtrk.events.event import Columns
from bigtrk.events.trackml import DETECTORS_FILE, has_detectors, read_detectors
from bigtrk.events.truth import module_ids
from bigtrk.graphs.builders.module_map import rows_of
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import Ints
from bigtrk.records.pipeline import LayerModules
from bigtrk.records.record import MOST

# Four events of 200 particles lack modules that 1.2 % of the hits of another such event are in.
FEW = 0.05


def layer_modules(graphs: Iterable[EventGraph]) -> tuple[LayerModules, ...]:
    """Lists the layers that graphs have hits in, and the range of their modules there; none where
    the graphs do not know modules, or where there are more layers than a record holds.
    """
    ranges: dict[tuple[int, int], tuple[int, int]] = {}
    for graph in graphs:
        rows = np.empty((0, 3), np.int64) if graph.modules is None else graph.modules.numpy()
        layers, layer_of = np.unique(rows[:, :2], axis=0, return_inverse=True)
        for number, (volume, layer) in enumerate(layers.tolist()):
            module = rows[layer_of == number, 2]
            low, high = ranges.get((volume, layer), (module.min(), module.max()))
            ranges[volume, layer] = (min(low, module.min()), max(high, module.max()))
    if len(ranges) > MOST:
        return ()
    return tuple(
        LayerModules(volume=volume, layer=layer, lowest=int(low), highest=int(high))
        for (volume, layer), (low, high) in sorted(ranges.items())
    )


def training_notes(hits: Columns, trained: Sequence[LayerModules]) -> list[str]:
    """Says in what an event is unlike those of the training: it has hits of fewer volumes, or hits
    in other modules, or hardly any.

    trained: the layers with hits in training; () where they are unknown.
    """
    modules = module_ids(hits)
    if len(modules) < 2:
        return [f"has {'one hit' if len(modules) else 'no hits'}, which makes no track"]
    if not trained:
        return []
    return [*_volume_notes(modules, trained), *_module_notes(modules, trained)]


def _volume_notes(modules: Ints, trained: Sequence[LayerModules]) -> list[str]:
    lacking = sorted({layer.volume for layer in trained} - set(modules[:, 0].tolist()))
    if not lacking:
        return []
    volumes = ", ".join(map(str, lacking))
    return [f"has no hits in volumes where the training's events have some: {volumes}"]


def _module_notes(modules: Ints, trained: Sequence[LayerModules]) -> list[str]:
    of_known_layer, known = np.zeros((2, len(modules)), bool)
    for layer in trained:
        inside = (modules[:, 0] == layer.volume) & (modules[:, 1] == layer.layer)
        of_known_layer |= inside
        known |= inside & (layer.lowest <= modules[:, 2]) & (modules[:, 2] <= layer.highest)
    if of_known_layer.all() and (~known).mean() <= FEW:
        return []
    return [_note(modules, ~known, "modules beyond those of the training's events")]


def described_modules(events: Path) -> Ints | None:
    """Reads the modules that a detector description beside events names, [M, 3]; None where there
    is none. One that cannot be read is said, and no reason to stop: no stage needs it.
    """
    if not has_detectors(events):
        return None
    try:
        return module_ids(read_detectors(events))
    except InputError as error:
        complain(f"{error} (tracks are made without it)")
        return None


def description_notes(hits: Columns, described: Ints | None) -> list[str]:
    """Says which hits are in modules that the detector description does not name."""
    modules = module_ids(hits)
    if described is None or not len(modules) or not len(described):
        return []
    unnamed = rows_of(modules, described) < 0
    place = f"modules that {DETECTORS_FILE} does not name"
    return [_note(modules, unnamed, place)] if unnamed.any() else []


def _note(modules: Ints, chosen: NDArray[np.bool_], place: str) -> str:
    volume, layer, module = modules[chosen][0]
    return (
        f"{chosen.sum():,} of {len(modules):,} hits are in {place}, first module {module} of layer "
        f"{layer} in volume {volume}"
    )
