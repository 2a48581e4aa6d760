"""Ranks with several sectors of an event train like the whole graph, on however many ranks."""

from pathlib import Path
from typing import Any

import pytest

from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import WHOLE, Cut
from bigtrk.records.run_folder import read_run
from bigtrk.training.data.event_source import open_events
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.routers import training_router
from bigtrk.user_code import allow_code
from tests.distributed.graphs import random_graph, source
from tests.distributed.parity import Oracle, stitched, worst
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import fit_all, losses, write_in_sectors
from tests.distributed.test_parity import configuration, sector_step
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


@pytest.mark.parametrize("world_size", EVENTS)
def test_several_sectors_of_a_rank_equal_the_whole_graph(world_size: int) -> None:
    graphs = [event.graph for event in events_of(world_size)]
    results = run_ranks(world_size, steps)
    for name, settings in SETTINGS.items():
        oracle = Oracle(settings, graphs)
        for result in results:
            assert result[name]["loss"] == pytest.approx(oracle.loss(), rel=1e-12)
            if settings.training.pt_weight:
                assert result[name]["pt_loss"] == pytest.approx(oracle.pt_loss(), rel=1e-12)
            assert worst(result[name]["gradients"], oracle.gradients()) < 1e-10
        scored = stitched((row for result in results for row in result[name]["logits"]), graphs)
        assert worst(scored, oracle.logits()) < 1e-10


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
        "training": {"epochs": 3, "routing": "stored"},
        "run": {"folder": run},
    }
    for section in ("data", "training"):
        chosen[section] |= sections.pop(section, {})
    chosen |= sections
    return Configuration.model_validate(chosen)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, data: Path) -> list[float]:
    """The losses of a run on whole graphs."""
    run = tmp_path_factory.mktemp("whole") / "run"
    run_ranks(1, fit_all, settings(data, run, data={"train": [data / "graphs"]}))
    return losses(run)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_run_in_all_stored_sectors_is_that_on_whole_graphs(
    tmp_path: Path, data: Path, whole: list[float], world_size: int
) -> None:
    run = tmp_path / "run"
    run_ranks(world_size, fit_all, settings(data, run))
    assert losses(run) == pytest.approx(whole, rel=1e-5)
    assert len(whole) == 6
    for step in read_run(run).steps:
        assert set(step.routes.values()) == {PARTS}
        assert set(step.ranks.values()) == {world_size}


def test_it_goes_on_in_mid_epoch_on_other_ranks(
    tmp_path: Path, data: Path, whole: list[float]
) -> None:
    """One step with all sectors on a rank, the others with two or three on each, and two or one."""
    run = tmp_path / "run"
    halted = settings(data, run, training={"minutes": 1e-6})
    run_ranks(1, fit_all, halted)
    run_ranks(2, fit_all, halted, run)
    run_ranks(3, fit_all, settings(data, run), run)
    assert losses(run) == pytest.approx(whole, rel=1e-5)


NAIVE: dict[str, Any] = {"data": {"sectors": "naive"}}


def trained(events: Path, run: Path, world_size: int, **sections: Any) -> list[float]:
    run_ranks(world_size, fit_all, settings(events, run, **sections))
    return losses(run)


def test_naive_sectors_train_alike_at_every_world_size(
    tmp_path: Path, data: Path, whole: list[float]
) -> None:
    """No edge between two sectors is trained, on however few ranks these lie."""
    alone = trained(data, tmp_path / "1", 1, **NAIVE)
    assert alone != pytest.approx(whole, rel=1e-3)
    assert trained(data, tmp_path / "3", 3, **NAIVE) == pytest.approx(alone, rel=1e-5)
    edges = {step.edges for step in read_run(tmp_path / "1").steps}
    assert edges == {step.edges for step in read_run(tmp_path / "3").steps}


def cuts(ranks: Ranks, configuration: Configuration, data: Path) -> list[list[Cut]]:
    allow_code([user_models.__name__])
    router = training_router(configuration, ranks, open_events([data / "sectors"]))
    return [list(choices) for choices in router.seconds]


def test_a_model_of_the_simple_form_has_the_sectors_of_a_rank_merged(
    tmp_path: Path, data: Path
) -> None:
    found = {}
    for form in ("Layered", "Simple"):
        model = {"name": f"{user_models.__name__}:{form}", "options": {"hidden": 6, "layers": 2}}
        found[form] = run_ranks(2, cuts, settings(data, tmp_path, model=model), data)[0]
    assert found == {"Layered": [[Cut(PARTS, 2)]] * 3, "Simple": [[Cut(2, 2)]] * 3}
