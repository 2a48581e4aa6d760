"""Events, models and gradients so small that all mini-batches of an event can be listed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.audit.draws import Exact, exact_gradients
from bigtrk.audit.gradients import parts_of
from bigtrk.audit.subject import HeldSource, Subject
from bigtrk.graphs.features import SCALES, normalised
from bigtrk.graphs.sector import Sector
from bigtrk.models.protocol import no_exchange
from bigtrk.parallel.world import make_world
from bigtrk.records.run import MeasuredScales
from bigtrk.training.data.event_source import EventSource, open_events
from bigtrk.training.model_files import build_model, describe
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import EDGE_FEATURES, NODE_FEATURES, random_graph
from tests.distributed.ranks import ALONE
from tests.distributed.runs import write_in_sectors

PARTS = 4


def write_data(folder: Path, n_events: int = 3, n_nodes: int = 24) -> None:
    """Writes events as `graphs` and, each cut in four, as `sectors`."""
    graphs = [random_graph(seed, n_nodes, 5 * n_nodes) for seed in range(n_events)]
    write_in_sectors(folder, graphs, PARTS)


def configuration(folder: Path, **sections: Any) -> Configuration:
    """Configures a model of few parameters, trained on `graphs`."""
    data = {"train": [folder / "graphs"], "validation": 0}
    return Configuration.model_validate(
        {"data": data, "model": {"hidden": 4, "layers": 2}, **sections}
    )


def write_run(run: Path, configured: Configuration) -> None:
    """Writes the model of a run that has ended."""
    run.mkdir()
    save_model(run, build_model(configured).state_dict(), describe(configured, []))


def subject(data: Path, configured: Configuration, events: int, seed: int = 0) -> Subject:
    """Holds what is audited of the first events of a folder; in a process group."""
    found: list[EventSource] = [
        HeldSource(one.name, one.parts, one.folder) for one in open_events([data])[:events]
    ]
    made = Subject(configured, MeasuredScales(), make_world(ALONE), found)
    return made.one_at_a_time(seed)


def exact_of(audited: Subject, model: nn.Module) -> Exact:
    return exact_gradients(audited, model, parts_of(model), "test")


def plain_gradient(
    model: nn.Module, sector: Sector, nodes: Tensor, edges: Sequence[bool] | Tensor, counted: Tensor
) -> Tensor:
    """Returns the gradient of the mean cross entropy of `counted` ones among `edges` of `nodes`,
    without anything else of bigtrk than its model: nodes [n], edges [e] rows, counted [e] bool
    -> [P].
    """
    edges = torch.as_tensor(edges)
    row = torch.full((sector.n_nodes,), -1)
    row[nodes] = torch.arange(len(nodes))
    x = normalised(sector.node_features, NODE_FEATURES, SCALES, NODE_FEATURES)[nodes]
    e = normalised(sector.edge_features, EDGE_FEATURES, SCALES, EDGE_FEATURES)[edges]
    dtype = next(model.parameters()).dtype
    inputs = x.to(dtype), e.to(dtype)
    logits = model(*inputs, row[sector.edge_index[:, edges]], len(nodes), no_exchange)
    assert sector.y is not None
    truth = sector.y[edges][counted].to(logits)
    loss = binary_cross_entropy_with_logits(logits[counted], truth)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
