"""Counts scaling curves to 4,096 ranks, by size of event and number of sectors. Measures nothing.

    python scripts/scaling/scaling_curves.py [--output FILE] [--quick | --publish]

Each event is in K sectors, one on a rank, and ranks / K events are trained on at once. Seconds
are those of `bigtrk plan` by the roofline of an A100 and four ranks on a host, once with
neighbours in METIS's tree on one host, as ranks are laid out, and once with sectors anywhere.
Events are those of partition_volumes.json, whose sectors and exchanges are as counted there, and
CTD's, which was not cut: its sectors follow the law of cuts. The last line is one JSON object: by
event and sectors the efficiency on the most ranks, relative to one rank with memory for a whole
event, and the share of the exchanges' time that the placement saves.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bigtrk.console import exit_on_bad_input, follow
from bigtrk.cost.event_size import EventSize, Exchange, event_size
from bigtrk.cost.machines import A100
from bigtrk.cost.model import CostModel
from bigtrk.disk.files import read_json
from bigtrk.planning.scaling import weak_scaling
from bigtrk.planning.sizes import PAPERS
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration
from scripts.results import CHECKOUT, RESULTS, Results, add_options

RANKS = (1, 4, 16, 64, 256, 1024, 4096)
SECTORS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
QUICK_RANKS, QUICK_SECTORS = (1, 16, 64), (1, 16)
RANKS_PER_NODE, MEMORY = 4, 40 * 2**30
PLACEMENTS = {"tree": True, "anywhere": False}  # whether the ranks of a host follow each other
SETTINGS = {"model": {"hidden": 128, "layers": 8, "recompute": "chunk", "precision": "bf16"}}


@dataclass(frozen=True)
class Crossing:
    """The most that a sector exchanges with other hosts: the share of its halo rows that comes from
    them, and the messages to them.
    """

    share: float
    messages: float


@dataclass(frozen=True, kw_only=True)
class CountedSize(EventSize):
    """An event in the number of sectors that it is `stored` in. Its sectors are as large as the
    largest that was counted and exchange as much as the one that exchanges most; those of an event
    scaled to another size differ from these as the law's do (bigtrk/cost/cut_law.py).

    neighbours: the most parts that a part exchanges rows with. tree, anywhere: what crosses hosts
    where the ranks of a host follow each other, and where they do not.
    """

    neighbours: float
    tree: Crossing
    anywhere: Crossing

    def exchange(self, parts: int, ranks_per_node: int, in_a_row: bool = True) -> Exchange:
        """Returns what the sector that exchanges most does, within its host and with others.

        in_a_row: the ranks of a host follow each other; else they are anywhere.
        """
        crossing, halo = self.tree if in_a_row else self.anywhere, self.sector(parts).halo
        within = min(self.neighbours, min(parts, ranks_per_node) - 1)
        share = crossing.share
        return Exchange((1 - share) * halo, share * halo, within, crossing.messages)


def counted_size(
    event: Mapping[str, Any], cut: Mapping[str, Any], ranks_per_node: int
) -> CountedSize:
    """Returns the size of an event of partition_volumes.json in one of its cuts, with so many ranks
    on a host (4 or 8 were counted).
    """
    nodes, edges, parts = event["nodes"], event["edges"], cut["parts"]
    quality = {
        "cut_fraction": cut["cut_edges"] / edges,
        # Of the part with most: ranks wait for it.
        "halo_fraction": parts * cut["largest_halo"] / nodes,
        "edge_imbalance": parts * cut["largest_edges"] / (edges + cut["cut_edges"]),
    }
    size = event_size({"nodes": nodes, "edges": edges, "parts": parts, "quality": quality})
    hosts = cut["hosts"][str(ranks_per_node)] if parts > ranks_per_node else None
    ways = [_crossing(hosts[way], cut) if hosts else Crossing(0, 0) for way in ("tree", "random")]
    neighbours = cut["neighbours"]["most"]
    return CountedSize(**asdict(size), neighbours=neighbours, tree=ways[0], anywhere=ways[1])


def _crossing(between: Mapping[str, float], cut: Mapping[str, Any]) -> Crossing:
    return Crossing(between["largest"] / cut["largest_halo"], between["messages"])


def cases(found: Mapping[str, Any], sectors: Sequence[int]) -> list[tuple[str, EventSize, int]]:
    """Lists the events that were cut, and CTD's, in each number of sectors, smallest first: as they
    were counted, or by the law in numbers in which they were not.
    """
    counted = {
        (row["event"], cut["parts"]): counted_size(row, cut, RANKS_PER_NODE)
        for row in found["events"]
        for cut in row["merged"]
    }
    whole = {row["event"]: EventSize(row["nodes"], row["edges"]) for row in found["events"]}
    whole["CTD"] = PAPERS["ctd"]
    names = sorted(whole, key=lambda name: whole[name].edges)
    return [(name, counted.get((name, k), whole[name]), k) for name in names for k in sectors]


def cost(world: int, in_a_row: bool = True) -> CostModel:
    configuration = Configuration.model_validate(SETTINGS)
    made = make_cost(configuration, world, RANKS_PER_NODE, A100)
    return replace(made, in_a_row=in_a_row)


def curve(name: str, event: EventSize, parts: int, ranks: Sequence[int]) -> dict[str, Any]:
    """Predicts an event's curve in so many sectors, with both placements."""
    return {
        "event": name,
        "nodes": event.nodes,
        "edges": event.edges,
        "sectors": parts,
        "bytes": cost(max(ranks)).memory(event, parts, parts).total,
        **{name: placed(event, parts, ranks, row) for name, row in PLACEMENTS.items()},
    }


def placed(
    event: EventSize, parts: int, ranks: Sequence[int], in_a_row: bool
) -> dict[str, float | list[dict[str, float]]]:
    """Predicts the seconds of an event's exchanges, and the points of its curve."""
    one = cost(1)
    alone = one.seconds(event, 1, 1) + one.reduction_seconds()
    points = weak_scaling(lambda world: cost(world, in_a_row), [event], ranks, parts, seed=0)
    return {
        "exchange_seconds": cost(max(ranks), in_a_row).exchange_seconds(event, parts),
        "points": [
            {
                "ranks": point.ranks,
                "events_per_step": point.events_per_step,
                "step_seconds": point.step_seconds,
                "efficiency": alone * point.events_per_step / point.step_seconds / point.ranks,
                "waiting": point.waiting,
                "communication": point.communication,
            }
            for point in points
        ],
    }


def saved(row: dict[str, Any]) -> float:
    """Returns the share of the exchanges' seconds that placement saves."""
    tree, anywhere = (row[name]["exchange_seconds"] for name in PLACEMENTS)
    return 1 - tree / anywhere if anywhere else 0.0


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Makes the last line."""
    return {
        f"{row['event']}, {row['sectors']} sectors": {
            "efficiency": row["tree"]["points"][-1]["efficiency"],
            "saved": saved(row),
        }
        for row in rows
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser, quick="few ranks and sectors")
    arguments = parser.parse_args()
    results = Results("scaling_curves", arguments)
    ranks, sectors = (QUICK_RANKS, QUICK_SECTORS) if arguments.quick else (RANKS, SECTORS)
    chosen = cases(read_json(CHECKOUT / RESULTS / "partition_volumes.json"), sectors)
    rows = [curve(*case, ranks) for case in follow(chosen, len(chosen), "curves")]
    results.write(
        summary(rows),
        curves=rows,
        constants=asdict(A100),
        ranks_per_node=RANKS_PER_NODE,
        memory_bytes=MEMORY,
        settings=SETTINGS,
    )


if __name__ == "__main__":
    exit_on_bad_input("scaling_curves.py", main)
