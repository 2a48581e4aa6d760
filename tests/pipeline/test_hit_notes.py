"""Notes tell in what an event is unlike those of a training."""

import numpy as np
import pytest
import torch

from bigtrk.events.event import Columns
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import module_ids
from bigtrk.graphs.builders.builder import TrueEdgeBuilder, build_graph
from bigtrk.pipeline.stages import (
    layer_modules,
    training_notes,
)
from bigtrk.records.pipeline import LayerModules

KNOWN = (
    LayerModules(volume=7, layer=2, lowest=1, highest=50),
    LayerModules(volume=8, layer=2, lowest=3, highest=9),
)


def hits(*modules: tuple[int, int, int]) -> Columns:
    columns = np.array(modules, np.int64).reshape(-1, 3).T
    return dict(zip(("volume_id", "layer_id", "module_id"), columns, strict=True))


FIRST, SECOND = (7, 2, 50), (8, 2, 3)
MANY = [FIRST, SECOND] * 20


@pytest.mark.parametrize(
    ("modules", "noted"),
    [
        ([], ["has no hits, which makes no track"]),
        ([FIRST], ["has one hit, which makes no track"]),
        (MANY, []),
        ([FIRST] * 2, ["has no hits in volumes where the training's events have some: 8"]),
        (
            MANY + [(8, 2, 10)] * 3,
            [
                "3 of 43 hits are in modules beyond those of the training's events, first module "
                "10 of layer 2 in volume 8"
            ],
        ),
        (
            [*MANY, (8, 4, 5)],
            [
                "1 of 41 hits are in modules beyond those of the training's events, first module 5 "
                "of layer 4 in volume 8"
            ],
        ),
    ],
)
def test_what_is_unlike_the_training(modules: list[tuple[int, int, int]], noted: list[str]) -> None:
    assert training_notes(hits(*modules), KNOWN) == noted


def test_the_layers_of_graphs_are_those_of_their_hits() -> None:
    events = [simulate_event(20, seed=3, event_id=number) for number in range(3)]
    graphs = [build_graph(event, TrueEdgeBuilder()) for event in events]
    rows = np.concatenate([module_ids(event.hits) for event in events])
    ranges: dict[tuple[int, int], list[int]] = {}
    for volume, layer, module in rows.tolist():
        ranges.setdefault((volume, layer), []).append(module)
    found = layer_modules(graphs)
    assert [(one.volume, one.layer) for one in found] == sorted(ranges)
    for one in found:
        modules = ranges[one.volume, one.layer]
        assert (one.lowest, one.highest) == (min(modules), max(modules))
    foreign = graphs[0].__class__("x", (), (), torch.empty(2, 0), torch.empty(2, 0), torch.empty(0))
    assert layer_modules([foreign]) == ()
