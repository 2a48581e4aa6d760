"""Small events whole and large ones in sectors, by memory: one training at every world size."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigtrk.errors import InputError
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.graphs.storage.sector_folder import write_sectors
from bigtrk.parallel.ranks import Ranks
from bigtrk.reports import read_run
from bigtrk.reports.routed_events import routes
from bigtrk.training.costs import find_machine, make_cost
from bigtrk.training.data.event_source import open_events, split_validation
from bigtrk.training.data.events import Events
from bigtrk.training.run import fit
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.routed_step import RoutedStep, check_routes
from bigtrk.training.steps.routers import training_router
from partition.sectors import cut
from tests.distributed.graphs import random_graph, random_parts
from tests.distributed.ranks import run_ranks

PARTS = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four small events in `graphs` and a large one, also in four `sectors`."""
    folder = tmp_path_factory.mktemp("events")
    graphs = [random_graph(seed, 40, 200 + 20 * seed) for seed in range(4)]
    graphs.append(random_graph(9, 2000, 20_000))
    for graph in graphs:
        write_graph(folder / "graphs", graph, {"nodes": graph.n_nodes, "edges": graph.n_edges})
    names = [graph.name for graph in graphs]
    made = write_manifest(folder / "graphs", "graphs", {}, names)
    large = graphs[-1]
    record = {
        "nodes": large.n_nodes,
        "edges": large.n_edges,
        "source_digests": made["events"][large.name]["digests"],
    }
    write_sectors(folder / "sectors", cut(large, random_parts(large, PARTS, PARTS), PARTS), record)
    write_manifest(folder / "sectors", "sectors", {}, [large.name])
    return folder


def settings(data: Path, run: Path, **training: Any) -> Configuration:
    return Configuration.model_validate(
        {
            "data": {"train": [data / "graphs", data / "sectors"], "validation": [data / "graphs"]},
            "model": {"hidden": 8, "layers": 3},
            "training": {"epochs": 2, "events_per_step": 3, **training},
            "run": {"folder": run},
        }
    )


def gib_for(configuration: Configuration, data: Path, parts: int, world: int) -> float:
    """A budget that holds the large event in `parts` sectors, and not in half as many."""
    cost = make_cost(configuration, world, ranks_per_node=4, machine=find_machine(None))
    source = open_events([data / "sectors"])[0]
    fits, fails = (cost.memory(source.size, k, k).total for k in (parts, parts // 2))
    assert fits < fails
    return (fits + fails) / 2 / 2**30


def train(ranks: Ranks, configuration: Configuration) -> None:
    train, _ = split_validation(configuration.data.train, 0)
    fit(configuration, ranks, Events(train, train[:1]), None)


def losses(run: Path) -> list[float]:
    return [step.loss for step in read_run(run).steps if step.loss is not None]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, data: Path) -> list[float]:
    """Losses of one rank, which has the memory for everything."""
    run = tmp_path_factory.mktemp("alone") / "run"
    run_ranks(1, train, settings(data, run))
    assert set(routes(read_run(run)).values()) == {1}
    return losses(run)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_a_step_is_the_same_at_every_world_size(
    tmp_path: Path, data: Path, world_size: int, alone: list[float]
) -> None:
    run = tmp_path / "run"
    budget = gib_for(settings(data, run), data, min(world_size, PARTS) // 2 * 2, world_size)
    run_ranks(world_size, train, settings(data, run, memory_gib=budget))
    found = read_run(run)
    *small, large = sorted(routes(found).items())
    assert [parts for _, parts in small] == [1, 1, 1, 1]
    assert large == ("event000000009", {2: 2, 3: 2, 4: 4}[world_size])
    assert losses(run) == pytest.approx(alone, rel=1e-5)
    assert len(alone) == 4


def test_an_event_in_sectors_has_their_number_in_its_size(data: Path) -> None:
    found = open_events([data / "graphs", data / "sectors"])
    assert [source.size.stored for source in found] == [1, 1, 1, 1, PARTS]
    assert [source.parts for source in found] == [1, 1, 1, 1, PARTS]


def complaint(ranks: Ranks, configuration: Configuration, folders: list[Path]) -> str:
    try:
        training_router(configuration, ranks, open_events(folders))
    except InputError as error:
        return str(error)
    return ""


def test_events_that_do_not_fit_are_named_with_the_remedy(tmp_path: Path, data: Path) -> None:
    chosen = settings(data, tmp_path)
    budget = gib_for(chosen, data, parts=4, world=4)
    chosen = settings(data, tmp_path, memory_gib=budget)
    graphs, sectors = data / "graphs", data / "sectors"
    for found in run_ranks(2, complaint, chosen, [graphs]):
        assert f"1 event(s) do not fit the {budget:.2f} GiB of a rank: event000000009 (" in found
        assert f"python -m partition {graphs} SECTORS --parts 4, add SECTORS" in found
        assert "start 4 ranks or more" in found
    for found in run_ranks(2, complaint, chosen, [graphs, sectors]):
        assert "GiB in 2 sectors); start 4 ranks or more" in found
    none = settings(data, tmp_path, memory_gib=0.01)
    assert "no number of sectors helps" in run_ranks(1, complaint, none, [graphs])[0]
    assert run_ranks(4, complaint, chosen, [graphs, sectors]) == [""] * 4


def test_naive_sectors_are_never_merged_for_speed(tmp_path: Path, data: Path) -> None:
    content = json.loads(settings(data, tmp_path).model_dump_json())
    content["data"]["sectors"] = "naive"
    naive = Configuration.model_validate(content)
    assert run_ranks(2, num_parts, naive, data)[0] == [1, 2]
    assert run_ranks(2, num_parts, settings(data, tmp_path, routing="stored"), data)[0] == [1, 2]


def num_parts(ranks: Ranks, configuration: Configuration, data: Path) -> list[int]:
    events = open_events([data / "graphs", data / "sectors"])
    return sorted({max(found) for found in training_router(configuration, ranks, events).seconds})


def routed_differently(ranks: Ranks) -> str:
    steps = [RoutedStep([0], [[None] * 2] * (1 + ranks.rank))]
    try:
        check_routes(steps)
    except InputError as error:
        return str(error)
    return ""


def test_ranks_with_other_routes_stop_before_the_epoch() -> None:
    for found in run_ranks(2, routed_differently):
        assert "rank 1 has another routing than rank 0: 2 micro-steps" in found
