"""The degrees of training events, for networks that are made with them (PNAConv)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bigtrk.models.settings import PyGConfig
from bigtrk.parallel.collectives import on_first_rank, together
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import Configuration


def with_degrees(configuration: Configuration, events: Sequence[EventSource]) -> Configuration:
    """Adds `model.options.degree_histogram`, that of `events`, where the model's network asks for
    it and the configuration has none; so the run records what its network is made with. Collective.

    Raises:
        InputError: the network's class cannot be imported, or an event cannot be read.
    """
    model = configuration.model
    if not isinstance(model, PyGConfig) or not together(model.lacks_degrees):
        return configuration
    counted = on_first_rank(lambda: degree_histogram(events))
    options = {**model.options, "degree_histogram": counted}
    model = model.model_copy(update={"options": options})
    return configuration.model_copy(update={"model": model})


def degree_histogram(events: Sequence[EventSource]) -> list[int]:
    """Counts the nodes of all events that no edge ends at, that one does, that two do ..."""
    total = torch.zeros(1, dtype=torch.int64)
    for event in events:
        for part in range(event.parts):
            sector = event.read(part, event.parts)
            degrees = torch.bincount(sector.edge_index[1], minlength=sector.n_nodes)
            total = _sum(total, torch.bincount(degrees[: sector.n_owned]))
    return [int(count) for count in total]


def _sum(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(max(len(a), len(b)), dtype=torch.int64)
    total[: len(a)] += a
    total[: len(b)] += b
    return total
