"""Edges between layers in files of a local disk, where a rank's memory has no room for them."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import nn

from bigtrk.console import say
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.model import CostModel
from bigtrk.disk.file_systems import free_bytes, network_file_system
from bigtrk.errors import InputError
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.stores.files import FileStore
from bigtrk.parallel.collectives import together
from bigtrk.parallel.host import memory_of_rank
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Router
from bigtrk.training.costs import find_machine, make_cost
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import Configuration, TrainingSettings
from bigtrk.training.steps.routers import memory_budget, scoring_router

GIB = 2**30
# Without a backward pass: the encoded edges, and those that the last layer made.
_SCORED_STATES = 2


@dataclass(frozen=True)
class Need:
    """The bytes that an event takes of a rank: of memory without its edges between layers, and of
    these.
    """

    event: str
    memory: float
    edges: float

    def spilled(self, room: float) -> float:
        """Returns the bytes of edges that `room` bytes of memory for edges are too few for."""
        return max(0.0, self.edges - room)


def spill_edges(
    model: nn.Module,
    configuration: Configuration,
    ranks: Ranks,
    sources: Sequence[EventSource],
    router: Router,
    scored: Sequence[EventSource],
) -> None:
    """Has the edges of a training on `sources`, laid over ranks by `router`, and of its validation
    on those that are `scored`, kept in files where memory has no room for them. Collective.

    Raises:
        InputError: as open_spill.
    """
    assert isinstance(model, InteractionGNN), "the configuration says so"
    _check_device("training.spill", ranks)
    cost = make_cost(
        configuration,
        ranks.world_size,
        ranks.local_size,
        find_machine(None),
        events=len(sources),
    )
    cost = replace(cost, spills_beyond=0.0)
    needs = [
        *_needs(cost, sources, router, cost.away_bytes),
        *_needs(cost, scored, scoring_router(scored, ranks.world_size), partial(_scored, cost)),
    ]
    budget = memory_budget(configuration, ranks)
    store = together(lambda: open_spill(configuration.training, ranks, needs, budget))
    model.keep_edges_in(store)


def _needs(
    cost: CostModel,
    sources: Sequence[EventSource],
    router: Router,
    edges: Callable[[EventSize, int, int], float],
) -> list[Need]:
    """Lists what events need in each of their cuts, of which `edges` counts the bytes of edges."""
    return [
        Need(source.name, cost.memory(source.size, *cut).total, edges(source.size, *cut))
        for source, choices in zip(sources, router.seconds, strict=True)
        for cut in choices
    ]


def _scored(cost: CostModel, event: EventSize, parts: int, ranks: int) -> float:
    """Returns the bytes of edges that a rank keeps without a backward pass: those of two layers."""
    hidden = cost.model.hidden
    assert hidden is not None, "the Interaction GNN has one"
    width = 2 if cost.model.precision == "bf16" else 4
    sectors = math.ceil(parts / ranks)
    return _SCORED_STATES * sectors * event.sector(parts).edges * hidden * width


def spill_scoring(model: nn.Module, folder: Path, ranks: Ranks) -> None:
    """Has the edges of a model that scores kept in files of `folder` where half of the rank's
    memory has no room for them: there are two tensors of them, and the scored graph beside.

    Raises:
        InputError: the model keeps none, or files cannot be made there.
    """
    if not isinstance(model, InteractionGNN):
        raise InputError(
            "--spill: only the Interaction GNN keeps edges between layers; leave it out"
        )
    _check_device("--spill", ranks)
    check_folder("--spill", folder, network=True)
    model.keep_edges_in(FileStore(folder, 0.5 * memory_of_rank(ranks), "--spill"))


def open_spill(
    settings: TrainingSettings, ranks: Ranks, needs: Sequence[Need], budget: float
) -> FileStore:
    """Opens a store for the edges of events that need so much, on a rank with `budget` bytes.

    Raises:
        InputError: the folder cannot be written, lies on a network file system though that is not
            allowed, or has too little space for all ranks of this host.
    """
    folder = settings.spill
    assert folder is not None, "nothing is spilled"
    check_folder("training.spill", folder, settings.spill_to_network)
    room = max(0.0, budget - max(need.memory for need in needs))
    largest = max(needs, key=lambda need: need.spilled(room))
    wanted, free = largest.spilled(room) * ranks.local_size, free_bytes(folder)
    if wanted > free:
        raise InputError(
            f"training.spill={folder}: has {free / GIB:.1f} GiB free, and the edges of "
            f"{largest.event} need {wanted / GIB:.1f} GiB there for {ranks.local_size} rank(s); "
            f"free some, name a larger disk, or train on more hosts"
        )
    if ranks.is_first and wanted:
        say(f"up to {wanted / GIB:.1f} GiB of edges go to {folder}, which has {free / GIB:.1f} GiB")
    return FileStore(folder, room)


def _check_device(option: str, ranks: Ranks) -> None:
    if ranks.device.type != "cpu":
        raise InputError(
            f"{option}: reads files into the memory of a CPU, not of {ranks.device.type}; leave it "
            f"out, and train with model.recompute=offload, which keeps edges on the host"
        )


def check_folder(option: str, folder: Path, network: bool) -> None:
    """Checks that files can be made in the folder of an `option`, which may lie on a `network` if
    that is allowed.

    Raises:
        InputError: they cannot, or it does.
    """
    if not folder.is_dir():
        raise InputError(f"{option}={folder}: no such folder; make it on a local disk")
    if not os.access(folder, os.W_OK | os.X_OK) or os.statvfs(folder).f_flag & os.ST_RDONLY:
        raise InputError(f"{option}={folder}: cannot be written; name a folder of your own")
    kind = network_file_system(folder)
    if kind and not network:
        raise InputError(
            f"{option}={folder}: lies on a network file system ({kind}), which is slower "
            f"than a local disk and shared; name a local folder, or set "
            f"training.spill_to_network=true"
        )
    if kind:
        say(f"{option}={folder} lies on a network file system ({kind})")
