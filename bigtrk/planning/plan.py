"""`bigtrk plan`: memory for each lever, and the smallest number of sectors that fits."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, get_args

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import Machine
from bigtrk.cost.model import CostModel
from bigtrk.parallel.routing import WHOLE, Cut, even_cut
from bigtrk.training.fitting import MOST_PARTS, make_cost, with_files
from bigtrk.training.settings import Configuration

# The levers a user has to save memory, as changes of the model's configuration.
LEVERS = [
    {"recompute": recompute, "precision": precision}
    for recompute in ("none", "layer", "chunk", "offload")
    for precision in ("fp32", "bf16")
    if (recompute, precision) != ("none", "bf16")
]
# The most sectors shown, of a rank (each further one saves less memory) and of an event.
_ON_A_RANK, _IN_A_TABLE = 4, 64


@dataclass(frozen=True)
class Question:
    """The question of a plan: events, ranks, and `budget`, the bytes per rank (None: not asked).

    measured: the run whose measured step slows down the machine's roofline, if one was named.
    """

    configuration: Configuration
    sizes: Sequence[EventSize]
    ranks: int
    ranks_per_node: int
    budget: float | None
    machine: Machine
    measured: str | None = None

    def cost(self, **levers: str) -> CostModel:
        """Returns the cost model, with the given levers of the model changed."""
        model = self.configuration.model
        own = {key: value for key, value in levers.items() if key in type(model).model_fields}
        model = type(model).model_validate({**model.model_dump(), **own})
        changed = self.configuration.model_copy(update={"model": model})
        return make_cost(changed, self.ranks, self.ranks_per_node, self.machine)

    @cached_property
    def costs(self) -> list[CostModel]:
        """The cost with all edges in memory and, if configured, the cost with edges in files."""
        in_memory = self.cost()
        in_files = with_files(in_memory, self.configuration, self.budget)
        return [in_memory] if in_files.spills_beyond is None else [in_memory, in_files]

    @property
    def largest(self) -> EventSize:
        return max(self.sizes, key=lambda size: size.edges)


def make_plan(question: Question) -> dict[str, Any]:
    """Makes the whole plan as JSON types, in bytes and seconds."""
    largest = question.largest
    cost, fits = _answer(question)
    return {
        "machine": asdict(question.machine),
        "measured_run": question.measured,
        "model": question.configuration.model.model_dump(mode="json"),
        "measured": cost.footprint(cut=False).measured,
        "engine": cost.sharding.name,
        "events": {
            "number": len(question.sizes),
            "largest": {"nodes": largest.nodes, "edges": largest.edges},
        },
        "budget_bytes": question.budget,
        "smallest_parts": fits.parts if fits else None,
        "sectors_per_rank": fits.most_on_a_rank if fits else None,
        "least": None if fits or question.budget is None else _least(question),
        "in_files": cost.spills_beyond is not None,
        "levers": _lever_rows(question),
        "sectors": [
            _sectors(cost, largest, cut)
            for cut in _cuts(cost)
            if cut.parts <= _IN_A_TABLE and cut.most_on_a_rank <= _ON_A_RANK
        ],
    }


def _answer(question: Question) -> tuple[CostModel, Cut | None]:
    """Returns the cost model and the smallest cut that fits (None if none does). All edges are in
    memory or, if that does not fit and files are configured, in files, as in a training.
    """
    answers = ((cost, _smallest_cut(cost, question)) for cost in question.costs)
    return next((answer for answer in answers if answer[1]), (question.costs[0], None))


def _levers(question: Question) -> list[dict[str, str]]:
    """Returns the model's levers, preceded by the configured setting if it is not among them.

    A CPU is its own host: there `offload` is `chunk`. A model of the user's own has no levers.
    """
    model = question.configuration.model
    own = {"recompute": str(model.recompute), "precision": str(model.precision)}
    fields = type(model).model_fields
    if not own.keys() <= fields.keys():
        return [own]
    known = {key: {*get_args(fields[key].annotation)} for key in own}
    if question.machine.shared:
        known["recompute"].discard("offload")
    levers = [lever for lever in LEVERS if all(lever[key] in known[key] for key in known)]
    return levers if own in levers else [own, *levers]


def _lever_rows(question: Question) -> list[dict[str, Any]]:
    """Returns the row of each lever; on a CPU also rows with all edges in files, where possible.

    An accelerator keeps edges on its host instead, with the lever `offload`.
    """
    rows = []
    for lever in _levers(question):
        cost = question.cost(**lever)
        rows.append(_lever(cost, lever, question))
        if question.machine.shared and cost.model.spills:
            rows.append(_lever(replace(cost, spills_beyond=0.0), lever, question))
    return rows


def _lever(cost: CostModel, lever: dict[str, str], question: Question) -> dict[str, Any]:
    largest = question.largest
    memory, smallest = cost.memory(largest, *WHOLE), _smallest_cut(cost, question)
    edges = cost.spilled_bytes(largest, *WHOLE)
    return {
        **lever,
        **asdict(memory),
        "total": memory.total,
        "host": cost.away_bytes(largest, *WHOLE) - edges,
        "files": edges + cost.input_file_bytes(largest, *WHOLE) if edges else 0.0,
        "smallest_parts": smallest.parts if smallest else None,
    }


def _sectors(cost: CostModel, event: EventSize, cut: Cut) -> dict[str, Any]:
    memory = cost.memory(event, *cut)
    return {
        "parts": cut.parts,
        "ranks": cut.ranks,
        **asdict(memory),
        "total": memory.total,
        "seconds": cost.seconds(event, *cut),
        "exchange_seconds": cost.exchange_seconds(event, cut.ranks),
    }


def _cuts(cost: CostModel) -> list[Cut]:
    """Lists cuts into powers of two of sectors: one per rank, then several if the model takes
    several.
    """
    layered = cost.footprint(cut=False).layered
    most = max(MOST_PARTS, _ON_A_RANK * cost.world) if layered else cost.world
    powers = (1 << i for i in range(most.bit_length()))
    return [even_cut(parts, cost.world) for parts in powers]


def _smallest_cut(cost: CostModel, question: Question) -> Cut | None:
    """Returns the cut into fewest sectors that fits a rank's memory; None if none does, or no
    memory is given.
    """
    if question.budget is None:
        return None
    totals = ((cut, cost.memory(question.largest, *cut).total) for cut in _cuts(cost))
    return next((cut for cut, total in totals if total <= question.budget), None)


def _least(question: Question) -> dict[str, Any]:
    """Returns the bytes and the parts of the cut that needs the least memory of a rank, with edges
    in memory or, if configured, in files: a small event's edges take less than the blocks of files.
    """
    tried = ((cost, cut) for cost in question.costs for cut in _cuts(cost))
    needed, cut = min((cost.memory(question.largest, *cut).total, cut) for cost, cut in tried)
    return {"bytes": needed, "parts": cut.parts}
