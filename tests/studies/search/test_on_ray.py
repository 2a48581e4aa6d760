"""Searches on Ray itself: two hosts of a core each, both of them this one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bigtrk.studies.search.plan import Search, open_search
from bigtrk.studies.search.ray_places import Share
from bigtrk.studies.search.run_search import run_search
from tests.studies.search.stand_in_searches import (
    check_accounts,
    result,
    start_search,
    trainings,
    wait_for,
)

cluster_utils = pytest.importorskip("ray.cluster_utils")
pytestmark = pytest.mark.slow

SPACE = """\
metric: train_loss
space:
  optimizer.lr: {low: 0.0001, high: 1.0}
"""
UNPRUNED = SPACE + "pruning: null\n"
POPULATION = SPACE + "population: {every: 1}\n"
Plan = Callable[..., Search]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.fixture(autouse=True)
def cluster(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)


def test_a_population_is_decided_as_on_one_host(plan: Plan) -> None:
    run_search(plan(POPULATION, 4), 4, 1, 1, None)
    alone = result()
    assert any(one["source"] is not None for one in alone["rounds"])
    Path("search").rename("alone")
    open_search(plan(POPULATION, 4))
    process = start_search(0.02, 4, at_once=2, on_ray=Share())
    process.join()
    assert process.exitcode == 0
    assert result() == alone


def test_trainings_end_with_their_searcher_and_the_next_one_goes_on(plan: Plan) -> None:
    open_search(plan(UNPRUNED, 3))
    process = start_search(0.3, 3, at_once=2, on_ray=Share())
    try:
        wait_for(lambda: len(trainings()) == 2)
        wait_for(lambda: list(Path("search").glob("trial*/checkpoints/step-*")))
        victims = trainings()
    finally:
        process.kill()
        process.join()
    wait_for(lambda: not any(Path(f"/proc/{victim}").exists() for victim in victims), 10)
    again = start_search(0.02, 3, at_once=2, on_ray=Share())
    again.join()
    assert again.exitcode == 0
    check_accounts(3)


def test_a_stopped_search_saves_and_goes_on(plan: Plan) -> None:
    open_search(plan(UNPRUNED, 3))
    process = start_search(0.3, 3, at_once=3, on_ray=Share())
    try:
        wait_for(lambda: len(trainings()) == 2)
        process.terminate()
        process.join()
        assert process.exitcode == os.EX_TEMPFAIL
    finally:
        process.kill()
    assert trainings() == []
    assert len(list(Path("search").glob("trial*/checkpoints"))) == 2, "they have saved"
    again = start_search(0.02, 3, at_once=2, on_ray=Share())
    again.join()
    assert again.exitcode == 0
    check_accounts(3)
