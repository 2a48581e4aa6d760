"""Small events whole and large ones in sectors, by memory: one training at every world size."""

from math import floor
from pathlib import Path
from typing import Any

import pytest

from bigtrk.cost.machines import find_machine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import WHOLE, Cut
from bigtrk.records.run_folder import read_run
from bigtrk.reports.runs import routes
from bigtrk.training.data.event_source import Events, open_events, split_validation
from bigtrk.training.fitting import make_cost
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import training_router
from tests.distributed.graphs import random_graph, write_cut, write_graphs
from tests.distributed.ranks import Done, message, run_all
from tests.distributed.runs import fit, losses

PARTS = 4


def write_data(folder: Path, nodes: int, edges: int) -> Path:
    """Writes four small events in `graphs` and a large one, also in four `sectors`."""
    graphs = [random_graph(seed, 40, 200 + 20 * seed) for seed in range(4)]
    graphs.append(random_graph(9, nodes, edges))
    write_graphs(folder / "graphs", graphs)
    write_cut(folder, graphs[-1:], PARTS)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("events"), 1000, 40_000)


def settings(data: Path, run: Path, **training: Any) -> Configuration:
    return Configuration.model_validate(
        {
            "data": {"train": [data / "graphs", data / "sectors"], "validation": [data / "graphs"]},
            "model": {"hidden": 48, "layers": 3},
            "training": {"epochs": 1, "events_per_step": 3, **training},
            "run": {"folder": run},
        }
    )


def gib_for(
    configuration: Configuration,
    data: Path,
    world: int,
    fitting: Cut,
    failing: Cut,
    events: int = 5,
    stored: str = "sectors",
) -> float:
    """A budget that holds the large of some events, as it is `stored`, in one cut, and not in
    the other.
    """
    cost = make_cost(configuration, world, 4, find_machine(None), events=events)
    source = open_events([data / stored])[-1]
    fits, fails = (cost.memory(source.size, *cut).total for cut in (fitting, failing))
    assert fits < fails
    return (fits + fails) / 2 / 2**30


def train(ranks: Ranks, configuration: Configuration) -> None:
    train, _ = split_validation(configuration.data.train, 0)
    fit(configuration, ranks, Events(train, train[:1]), None)


def complaint(ranks: Ranks, configuration: Configuration, folders: list[Path]) -> str | None:
    return message(lambda: training_router(configuration, ranks, open_events(folders)))


# The number of sectors of the large event, by that of ranks.
TRAINED_IN = {2: 2, 3: 2, 4: 4}


def in_parts(data: Path, run: Path, world_size: int) -> Configuration:
    """Has the memory for the large event in just `TRAINED_IN` sectors."""
    parts = TRAINED_IN[world_size]
    fewer = Cut(parts // 2, parts // 2)
    budget = gib_for(settings(data, run), data, world_size, Cut(parts, parts), fewer)
    return settings(data, run, memory_gib=budget)


def in_several(data: Path, run: Path) -> Configuration:
    """Has the memory for it in two sectors on each of two ranks, and not in one on each:
    recomputing a layer at once takes memory by the largest sector.
    """
    by_layer = settings(data, run)
    by_layer = by_layer.model_copy(
        update={"model": by_layer.model.model_copy(update={"recompute": "layer"})}
    )
    budget = gib_for(by_layer, data, 2, Cut(PARTS, 2), Cut(2, 2))
    training = by_layer.training.model_copy(update={"memory_gib": budget})
    return by_layer.model_copy(update={"training": training})


def halved_gib(data: Path) -> float:
    return gib_for(settings(data, data), data, 2, Cut(2, 2), WHOLE, stored="graphs")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Done:
    """Each number of ranks starts once; one alone has the memory for everything."""
    folder, graphs = tmp_path_factory.mktemp("runs"), data / "graphs"

    def chosen(**training: Any) -> Configuration:
        return settings(data, folder, **training)

    works: dict[int, dict[str, Any]] = {
        1: {"alone": (train, (settings(data, folder / "alone"),))},
        2: {
            "several": (train, (in_several(data, folder / "several"),)),
            "whole": (complaint, (chosen(memory_gib=halved_gib(data)), [graphs])),
        },
        3: {},
        4: {},
    }
    for n in TRAINED_IN:
        works[n]["parts"] = train, (in_parts(data, folder / str(n), n),)
    return Done({n: run_all(n, of_n) for n, of_n in works.items()}, folder)


@pytest.fixture(scope="module")
def alone(done: Done) -> list[float]:
    """Losses of one rank, which has the memory for everything."""
    run = done.folder / "alone"
    assert set(routes(read_run(run)).values()) == {1}
    return losses(run)


@pytest.mark.parametrize("world_size", TRAINED_IN)
def test_a_step_is_the_same_at_every_world_size(
    done: Done, world_size: int, alone: list[float]
) -> None:
    run = done.folder / str(world_size)
    *small, large = sorted(routes(read_run(run)).items())
    assert [parts for _, parts in small] == [1, 1, 1, 1]
    assert large == ("event000000009", TRAINED_IN[world_size])
    assert losses(run) == pytest.approx(alone, rel=1e-5)
    assert len(alone) == 2


def test_what_does_not_fit_in_a_sector_on_each_rank_is_trained_in_several(
    done: Done, alone: list[float]
) -> None:
    run = done.folder / "several"
    found = read_run(run)
    assert routes(found)["event000000009"] == PARTS
    assert {step.ranks.get("event000000009", 2) for step in found.steps} == {2}
    assert losses(run) == pytest.approx(alone, rel=1e-5)


def test_events_that_do_not_fit_are_named_with_the_remedy(done: Done, data: Path) -> None:
    graphs, budget = data / "graphs", floor(100 * halved_gib(data)) / 100
    for found in done.of[2]["whole"]:
        assert f"1 event does not fit the {budget:.2f} GiB of a rank: event000000009 (" in found
        assert "GiB whole); cut them with " in found
        assert found.endswith(
            f"python -m partition {graphs} SECTORS --parts 2, and add SECTORS to data.train"
        )
