"""Ranks with several sectors of an event train like the whole graph, on however many ranks."""

from pathlib import Path
from typing import Any

import pytest

from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import WHOLE, Cut
from bigtrk.records.run_folder import read_run
from bigtrk.training.data.event_source import open_events
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import training_router
from bigtrk.user_code import allow_code
from tests.distributed.graphs import random_graph, source
from tests.distributed.parity import Oracle
from tests.distributed.ranks import Done, run_all
from tests.distributed.runs import ENGINES, evaluated, fit_all, losses, write_in_sectors
from tests.distributed.test_parity import check_step, configuration, sector_step
from tests.models import user_models

PARTS = 5
# By ranks: each event's number of sectors, those of them that own nodes, and its cut.
EVENTS: dict[int, list[tuple[int, int, Cut]]] = {
    1: [(4, 4, Cut(4, 1)), (1, 1, WHOLE), (3, 2, Cut(3, 1))],
    2: [(4, 4, Cut(4, 2)), (3, 3, Cut(3, 2)), (1, 1, WHOLE), (2, 2, Cut(2, 1))],
    # Of three ranks one has one sector and two have two; then a block of two leaves one without.
    3: [(5, 5, Cut(5, 3)), (8, 5, Cut(8, 3)), (4, 4, Cut(4, 2))],
}
SETTINGS = {
    "chunk, per event": configuration("chunk"),
    "none, per edge, pT": configuration("none", step_loss="per_edge", pt_weight=0.3),
    "attention": configuration("layer", "attention"),
}


def events_of(world_size: int) -> list[Any]:
    cuts = EVENTS[world_size]
    return [source(seed, parts, used) for seed, (parts, used, _) in enumerate(cuts)]


def steps(ranks: Ranks) -> dict[str, dict[str, Any]]:
    events, cuts = events_of(ranks.world_size), [cut for *_, cut in EVENTS[ranks.world_size]]
    return {name: sector_step(ranks, each, events, cuts) for name, each in SETTINGS.items()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three events, in `graphs` and in five `sectors`."""
    folder = tmp_path_factory.mktemp("events")
    graphs = [random_graph(seed, 60 + 20 * seed, 400) for seed in range(3)]
    write_in_sectors(folder, graphs, PARTS)
    return folder


def settings(events: Path, run: Path, **sections: Any) -> Configuration:
    """An event a step, in all its sectors; sections of the configuration are changed."""
    chosen: dict[str, Any] = {
        "data": {"train": [events / "sectors"], "validation": 1},
        "model": {"hidden": 8, "layers": 3},
        "training": {"epochs": 2, "routing": "stored"},
        "run": {"folder": run},
    }
    for section in ("data", "training"):
        chosen[section] |= sections.get(section, {})
    chosen |= {name: given for name, given in sections.items() if name not in ("data", "training")}
    return Configuration.model_validate(chosen)


NAIVE: dict[str, Any] = {"data": {"sectors": "naive"}}


def cuts(ranks: Ranks, configuration: Configuration, data: Path) -> list[list[Cut]]:
    allow_code([user_models.__name__])
    router = training_router(configuration, ranks, open_events([data / "sectors"]))
    return [list(choices) for choices in router.seconds]


def of_form(data: Path, form: str) -> Configuration:
    model = {"name": f"{user_models.__name__}:{form}", "options": {"hidden": 6, "layers": 2}}
    return settings(data, data / "none", model=model)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Done:
    """Each number of ranks starts once: runs on whole graphs, in all sectors and in naive ones."""
    folder = tmp_path_factory.mktemp("runs")

    def run(name: str, **sections: Any) -> Any:
        return fit_all, (settings(data, folder / name, **sections),)

    works: dict[int, dict[str, Any]] = {
        1: {
            "whole": run("whole", data={"train": [data / "graphs"]}),
            "naive": run("naive 1", **NAIVE),
            "naive, whole": (evaluated, (folder / "naive 1", data / "graphs")),
        },
        2: {**{form: (cuts, (of_form(data, form), data)) for form in ("Layered", "Simple")}},
        3: {
            "naive": run("naive 3", **NAIVE),
            "zero3": run("zero3", engine=ENGINES["zero3"], training={"routing": "automatic"}),
        },
    }
    of_all = {n: {"steps": (steps, ()), "stored": run(f"stored {n}")} for n in works}
    return Done({n: run_all(n, {**of_all[n], **own}) for n, own in works.items()}, folder)


def validation(run: Path) -> list[float]:
    """Returns the validation losses of a run's two epochs. Its AUC counts pairs of edges: with
    ZeRO-3 rounding turned one of them, which is 6e-5 of it.
    """
    found = [epoch.validation.loss for epoch in read_run(run).epochs if epoch.validation]
    known = [loss for loss in found if loss is not None]
    assert len(known) == 2
    return known


@pytest.mark.parametrize("world_size", EVENTS)
def test_several_sectors_of_a_rank_equal_the_whole_graph(done: Done, world_size: int) -> None:
    graphs = [event.graph for event in events_of(world_size)]
    results = done.of[world_size]["steps"]
    for name, settings in SETTINGS.items():
        check_step([result[name] for result in results], Oracle(settings, graphs), graphs)


@pytest.mark.parametrize("name", ["stored 1", "stored 2", "stored 3", "zero3"])
def test_a_run_in_sectors_is_that_on_whole_graphs(done: Done, name: str) -> None:
    """Three ranks with "zero3" score one or two of five sectors each."""
    run, whole = done.folder / name, done.folder / "whole"
    assert losses(run) == pytest.approx(losses(whole), rel=1e-5)
    assert len(losses(whole)) == 4
    assert validation(run) == pytest.approx(validation(whole), rel=1e-5)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_run_in_all_stored_sectors_has_all_ranks_share_them(done: Done, world_size: int) -> None:
    for step in read_run(done.folder / f"stored {world_size}").steps:
        assert set(step.routes.values()) == {PARTS}
        assert set(step.ranks.values()) == {world_size}


def test_models_of_naive_sectors_are_validated_on_whole_graphs(done: Done) -> None:
    """The loss is that of `bigtrk evaluate` on graphs without sectors, on one rank, which has all
    sectors, and on three.
    """
    [on_graphs] = done.of[1]["naive, whole"]
    for world_size in (1, 3):
        last = validation(done.folder / f"naive {world_size}")[-1]
        assert last == pytest.approx(on_graphs.edge_metrics.loss, rel=1e-5), world_size


def test_a_model_of_the_simple_form_has_the_sectors_of_a_rank_merged(done: Done) -> None:
    found = {form: done.of[2][form][0] for form in ("Layered", "Simple")}
    assert found == {"Layered": [[Cut(PARTS, 2)]] * 3, "Simple": [[Cut(2, 2)]] * 3}
