"""Keeps edges between layers in files of a local disk, or in the memory of a GPU's host."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from torch import nn

from bigtrk.console import complain, say
from bigtrk.cost.machines import find_machine
from bigtrk.disk.local_files import MEMORY, NETWORK, file_system, free_bytes
from bigtrk.errors import InputError, number_of
from bigtrk.machine import memory_bytes
from bigtrk.models.edges.stores import FileStore
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.parallel.collectives import together
from bigtrk.parallel.ranks import FILLED, Ranks, memory_of_rank
from bigtrk.parallel.routing import Cut, Router
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.data.input_files import InputFiles
from bigtrk.training.fitting import GIB, fitting_cuts, make_cost, memory_budget
from bigtrk.training.settings import Configuration


@dataclass(frozen=True)
class SpillFolder:
    """A folder for edges in files. option: the setting that named it, for messages."""

    path: Path
    option: str = "--spill"

    def __str__(self) -> str:
        return f"{self.option}={self.path}"


@dataclass(frozen=True)
class Need:
    """The bytes that an event needs on a rank. memory: without edges between layers. edges: all
    tensors of edges between layers; tensor: one of them. inputs: of edges, always in files.
    """

    event: str
    memory: float
    edges: float
    tensor: float
    inputs: float = 0.0

    def spilled(self, room: float) -> float:
        """Returns the bytes that go to files if memory keeps `room` bytes of whole tensors."""
        kept = room - room % self.tensor if self.tensor else 0.0
        return max(0.0, self.edges - kept) + self.inputs


class LaidEvents(NamedTuple):
    """Events, and the router that assigns them to ranks."""

    sources: Sequence[EventSource]
    router: Router

    def cuts(self) -> Iterator[tuple[EventSource, Cut]]:
        """Yields each event with each of its cuts."""
        for source, choices in zip(self.sources, self.router.seconds, strict=True):
            for cut in choices:
                yield source, cut


def spill_edges(
    model: nn.Module,
    configuration: Configuration,
    ranks: Ranks,
    trained: LaidEvents,
    scored: LaidEvents,
) -> InputFiles | None:
    """Makes the model keep edges in files if memory is short; returns files for their inputs, else
    None. Collective. Raises InputError as open_spill.
    """
    if configuration.training.spill is None:
        return None
    assert isinstance(model, InteractionGNN), "the configuration says so"
    _check_device("training.spill", ranks)
    folder = SpillFolder(configuration.training.spill, "training.spill")
    budget = memory_budget(configuration, ranks)
    cost = fitting_cuts(configuration, ranks, len(trained.sources), budget).cost
    laid = [*trained.cuts(), *scored.cuts()]
    if all(cost.memory(source.size, *cut).total <= budget for source, cut in laid):
        together(check_folder, folder)
        return None
    spilling = replace(cost, spills_beyond=0.0)
    needs = []
    for events in (trained, scored):
        for source, cut in events.cuts():
            tensor = _tensor_bytes(model, source.size.sector(cut.parts).edges)
            edges = spilling.away_bytes(source.size, *cut)
            if events is scored:
                edges = cut.most_on_a_rank * _scored_tensors(model) * tensor
            memory = spilling.memory(source.size, *cut).total
            inputs = spilling.input_file_bytes(source.size, *cut)
            needs.append(Need(source.name, memory, edges, tensor, inputs))
    model.keep_edges_in(together(open_spill, folder, ranks, needs, budget))
    return InputFiles(folder.path, folder.option)


class HeldSectors(NamedTuple):
    """The sectors of an event that a rank scores at once; edges: those of the largest one."""

    edges: float
    sectors: int = 1


def held_sectors(events: LaidEvents) -> dict[str, HeldSectors]:
    """Returns, by event name, the sectors that a rank scores at once."""
    return {
        source.name: HeldSectors(source.size.sector(cut.parts).edges, cut.most_on_a_rank)
        for source, cut in events.cuts()
    }


def spill_scoring(
    model: nn.Module, folder: SpillFolder, ranks: Ranks, scored: Mapping[str, HeldSectors]
) -> None:
    """Makes the model keep edges in files of `folder` at inference, if they exceed half of the
    rank's memory; the graph takes the other half. scored: by event name, the sectors that a rank
    scores at once. Raises InputError if the model cannot do so, or as open_spill.
    """
    if not isinstance(model, InteractionGNN):
        raise InputError(f"{folder.option}: needs model.name=interaction; leave the option out")
    _check_device(folder.option, ranks)
    needs = []
    for event, (n_edges, sectors) in scored.items():
        tensor = _tensor_bytes(model, n_edges)
        needs.append(Need(event, 0.0, sectors * _scored_tensors(model) * tensor, tensor))
    model.keep_edges_in(open_spill(folder, ranks, needs, 0.5 * memory_of_rank(ranks)))


def _tensor_bytes(model: InteractionGNN, n_edges: float) -> float:
    """Returns the bytes of one tensor of `n_edges` hidden edge states."""
    width = 2 if model.config.precision == "bf16" else next(model.parameters()).element_size()
    return n_edges * model.config.hidden * width


def _scored_tensors(model: InteractionGNN) -> int:
    """Counts the edge tensors kept at inference: the last, and the encoded if read again."""
    return 2 if model.config.concatenate and model.config.layers > 1 else 1


def open_spill(
    folder: SpillFolder, ranks: Ranks, needs: Sequence[Need], budget: float
) -> FileStore:
    """Opens a store of edges that fills `budget` bytes of a rank's memory, then files. Raises
    InputError if `folder` takes no files, or lacks space for all ranks of this host.
    """
    check_folder(folder)
    room = max(0.0, budget - max(need.memory for need in needs))
    largest = max(needs, key=lambda need: need.spilled(room))
    wanted, free = largest.spilled(room) * ranks.local_size, free_bytes(folder.path)
    if wanted > free:
        raise InputError(
            f"{folder}: has {gib(free)} GiB free, and the edges of {largest.event} need "
            f"{gib(wanted)} GiB for {number_of(ranks.local_size, 'rank')}; free some space, name "
            f"a folder on a larger disk, or use more hosts"
        )
    if ranks.is_first and wanted:
        # On stderr, since the output of a command that scores may be JSON.
        place = f"the folder {folder.path} ({gib(free)} GiB free)"
        complain(f"up to {gib(wanted)} GiB of edges go to {place}")
    return FileStore(folder.path, room, folder.option)


def gib(n_bytes: float) -> str:
    """Writes a number of bytes in GiB, with more decimals if they are few."""
    size = n_bytes / GIB
    return f"{size:.1f}" if size >= 0.1 or size < 0.001 else f"{size:.3f}"


def _check_device(option: str, ranks: Ranks) -> None:
    if ranks.device.type != "cpu":
        raise InputError(
            f"{option}: works only on CPUs, not on {ranks.device.type}; leave it out (a training "
            f"with model.recompute=offload keeps edges in the host's memory instead)"
        )


def check_folder(folder: SpillFolder) -> None:
    """Raises InputError unless files can be made in the folder; warns of slow kinds of disk."""
    if not folder.path.is_dir():
        raise InputError(f"{folder}: no such folder; make it on a local disk")
    if not os.access(folder.path, os.W_OK | os.X_OK):  # nor on a disk that is mounted read-only
        raise InputError(f"{folder}: cannot be written to; name a folder of your own")
    kind = file_system(folder.path)
    if kind in NETWORK:
        complain(
            f"{folder} lies on a network file system ({kind}), which is slower than a local disk"
        )
    if kind in MEMORY:
        complain(
            f"{folder} lies in memory ({kind}), so it saves no memory; name a folder on a disk"
        )


def check_host_memory(configuration: Configuration, ranks: Ranks, trained: LaidEvents) -> None:
    """Checks that each host has room for the edges of its accelerators, if these go there, and
    prints how much they take. Collective. Raises InputError if a host has too little memory.
    """
    if ranks.device.type == "cpu" or not configuration.model.offloads:
        return
    per_step = configuration.training.events_per_step
    cost = make_cost(configuration, ranks.world_size, ranks.local_size, find_machine(None))
    least, most = dict[str, float](), 0.0
    for source, cut in trained.cuts():
        # All ranks that a step gives work may train events of this size at once.
        at_work = min(ranks.local_size, per_step * cut.ranks)
        n_bytes = at_work * cost.away_bytes(source.size, *cut)
        least[source.name] = min(n_bytes, least.get(source.name, n_bytes))
        most = max(most, n_bytes)

    def check_room() -> None:
        event, n_bytes = max(least.items(), key=lambda one: one[1])
        memory = memory_bytes()
        if n_bytes > FILLED * memory:
            raise InputError(
                f"model.recompute=offload: the edges of {event} need at least {n_bytes / GIB:.3f} "
                f"GiB, but may fill only {FILLED:.0%} of the host's {memory / GIB:.3f} GiB; cut "
                f"events into more sectors, start fewer ranks per host, or set model.precision=bf16"
            )

    together(check_room)
    if ranks.is_first:
        say(f"model.recompute=offload: edges take up to {gib(most)} GiB of each host's memory")
