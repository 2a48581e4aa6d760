"""The first layer after which the rows of a sector are not those of the whole graph: passes are
compared step by step.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from bigtrk.graphs.sector import Sector
from bigtrk.models.layer_names import told
from bigtrk.models.protocol import Exchange
from bigtrk.proof.alignment import Rows
from bigtrk.proof.lockstep import run_sectors
from bigtrk.proof.outcome import inputs_of, replica
from bigtrk.proof.probe import UNKNOWN, Probe
from bigtrk.proof.trace import Step, Trace
from bigtrk.proof.way import Steps, Way


def record(model: nn.Module, whole: Sector) -> Steps:
    """Runs `model` on a whole graph: all that it makes on its way, in order."""
    made: Steps = {}

    def note(step: Step, tensors: Sequence[Tensor]) -> None:
        made[step] = [tensor.detach().clone() for tensor in tensors]

    _run([Trace(replica(model), note)], [whole])
    return made


def coarsest(made: Steps) -> tuple[Step, torch.dtype]:
    """Finds the floating type of the fewest digits that a pass computes in, and where first."""
    types = [(step, tensor.dtype) for step, tensors in made.items() for tensor in tensors]
    return min(types, key=lambda pair: -torch.finfo(pair[1]).eps)


def first_difference(
    model: nn.Module, whole: Sector, parts: Sequence[Sector], tolerance: float, why: str | None
) -> str:
    """Names the first layer whose rows in `parts`, sectors of the graph `whole`, are not those of
    the whole, as some are not, and says why: `why`, or what is found out.
    """
    made = record(model, whole)
    ways = [Way(Rows(whole, part), made, tolerance) for part in parts]
    _run([Trace(replica(model), way.note) for way in ways], parts)
    place = {step: i for i, step in enumerate(made)}
    faults = [(place[way.fault], k) for k, way in enumerate(ways) if way.fault]
    if not faults:
        return f"{told('', model)}: {why or UNKNOWN}"
    way = ways[min(faults)[1]]
    assert way.fault
    layer = told(way.fault.blamed, model.get_submodule(way.fault.blamed))
    if way.function is None:
        return f"{layer}: {why or UNKNOWN}"
    probe = Probe(replica(model), way, way.function)
    traces = [probe if each is way else Trace(replica(model), _ignore) for each in ways]
    _run(traces, parts)
    return f"{layer}, {way.function.what.strip('_')}{probe.line}: {why or probe.why}"


def _run(traces: Sequence[Trace], sectors: Sequence[Sector]) -> None:
    def run(trace: Trace, sector: Sector, exchange: Exchange) -> Tensor:
        with trace:
            made: Tensor = trace.model(*inputs_of(sector), trace.sending(exchange))
            return made

    pairs = zip(traces, sectors, strict=True)
    run_sectors([partial(run, trace, sector) for trace, sector in pairs], sectors)


def _ignore(step: Step, tensors: Sequence[Tensor]) -> None:
    """Notes nothing."""
