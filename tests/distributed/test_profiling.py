"""The trace of a run on two ranks: which ranges it has, in which steps."""

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

from bigtrk.parallel.ranks import Ranks
from bigtrk.training.data.event_source import Events, split_validation
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import random_graph
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import fit, write_in_sectors

LAYERS = ["layer 0 edge", "layer 0 node", "layer 0 exchange", "layer 1 edge"]
OF_THE_STEP = ["data", "encode", *LAYERS, "decode", "loss", "backward", "reduce", "optimizer"]


class Range(NamedTuple):
    """A range of the trace from `start` to `end`, in us."""

    name: str
    start: float
    end: float


def configuration(folder: Path, epochs: int) -> Configuration:
    """Two steps per epoch, each of an event in two sectors."""
    write_in_sectors(folder, [random_graph(seed, 60, 400) for seed in range(2)], 2)
    return Configuration.model_validate(
        {
            "data": {"train": [folder / "sectors"], "validation": 0},
            "model": {"hidden": 8, "layers": 2},
            "training": {"epochs": epochs, "routing": "stored"},
            "run": {"folder": folder / "run"},
            "profile": True,
        }
    )


def train(ranks: Ranks, settings: Configuration) -> None:
    fit(settings, ranks, Events(*split_validation(settings.data.train, 0)), None)


def ranges(path: Path) -> list[Range]:
    with gzip.open(path, "rt") as stream:
        events: list[dict[str, Any]] = json.load(stream)["traceEvents"]
    return [
        Range(event["name"], event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("ph") == "X"
    ]


def test_every_range_is_in_every_step(tmp_path: Path) -> None:
    run_ranks(2, train, configuration(tmp_path, 3))
    traces = [tmp_path / "run" / f"trace-rank{rank}.json.gz" for rank in (0, 1)]
    assert sorted((tmp_path / "run").glob("trace*")) == traces
    for trace in traces:
        found = ranges(trace)
        of_steps = {r.name: r for r in found if r.name.startswith("step ")}
        assert list(of_steps) == ["step 3", "step 4", "step 5"]
        for step in of_steps.values():
            inside = [r for r in found if step.start <= r.start and r.end <= step.end]
            lasting = {r.name for r in inside if r.end > r.start}
            assert lasting.issuperset(OF_THE_STEP), sorted(set(OF_THE_STEP) - lasting)
