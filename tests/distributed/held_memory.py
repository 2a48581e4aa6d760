"""Counts what an engine keeps in the memory of a rank: storages in the second step after its
backward pass, when parameters, gradients and optimizer state exist side by side.
"""

import gc
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from bigtrk.models.protocol import no_exchange
from bigtrk.parallel.collectives import gather_items
from bigtrk.parallel.engines.engine import Engine, make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import Stopwatch
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration

COLUMNS = ("parameters", "gradients", "optimizer", "other")
NODES, EDGES = 50, 200

Storages = dict[int, int]  # bytes by address


def storages(tensors: Iterable[Tensor]) -> Storages:
    """Lists the storages behind `tensors`, each once; of a DTensor this rank's shard."""
    found = {}
    for tensor in tensors:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        storage = local.untyped_storage()
        if storage.nbytes():
            found[storage.data_ptr()] = storage.nbytes()
    return found


def alive() -> Iterator[Tensor]:
    """Yields every tensor that Python knows of."""
    gc.collect()
    for item in gc.get_objects():
        # isinstance would wake lazy modules, which warn.
        if issubclass(type(item), Tensor) and not isinstance(item, DTensor):
            yield item


def held(engine: Any) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Lists the parameters and gradients of an engine, and what its optimizer updates and keeps;
    some share a storage, or are DTensors.
    """
    parameters = list(engine.model.parameters())
    gradients = [p.grad for p in parameters if p.grad is not None]
    optimizer = getattr(engine, "_optimizer", None) or engine.model.optimizer
    if getattr(engine, "stage", 0):  # of ZeRO
        zero, optimizer = optimizer, optimizer.optimizer
        gradients += [one for of in zero.averaged_gradients.values() for one in of or ()]
        gradients += [p.grad for p in optimizer.state if p.grad is not None]
        if engine.stage == 3:
            # A rank's part lies beside an emptied parameter, and its part of all gradients in one
            # buffer, also between steps.
            gradients.append(zero.grad_partitions_flat_buffer)
            parameters = [parameter.ds_tensor for parameter in parameters]
    kept = [value for state in optimizer.state.values() for value in state.values()]
    tensors = [value for value in kept if isinstance(value, Tensor)]
    return [p.data for p in parameters], gradients, [*optimizer.state, *tensors]


def count(engine: Engine) -> dict[str, int]:
    """Counts bytes per column; a storage counts in the first that it belongs to."""
    seen: Storages = {}
    counted = {}
    for column, tensors in zip(COLUMNS, (*held(engine), alive()), strict=True):
        new = {k: v for k, v in storages(tensors).items() if k not in seen}
        counted[column] = sum(new.values())
        seen |= new
    return counted


def measure(ranks: Ranks, configuration: Configuration) -> dict[str, Any]:
    """Counts what the fullest rank holds in the second step, in bytes. Collective."""
    device = ranks.device
    model = build_model(configuration).to(device)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    engine, name = make_engine(
        configuration.engine, model, configuration.optimizer, Stopwatch(device)
    )
    backward(engine, device)
    engine.step(1e-3)
    backward(engine, device)
    found = count(engine)
    everyone = gather_items(found)
    fullest = {column: max(rank[column] for rank in everyone) for column in found}
    return {"engine": name, "numbers": numbers, "bytes": fullest}


def backward(engine: Engine, device: torch.device) -> None:
    """Runs one micro-step on a random graph."""
    x, edge_features = torch.randn(NODES, 4, device=device), torch.randn(EDGES, 6, device=device)
    edge_index = torch.randint(NODES, (2, EDGES), device=device)
    with engine.micro_step(last=True):
        engine.backward(engine.model(x, edge_features, edge_index, NODES, no_exchange).mean())
