"""Sectors that do not fit together end on all ranks with one message, before anybody exchanges."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bigtrk.parallel.collectives import together
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.data.event_source import Events, split_validation
from bigtrk.training.settings import Configuration
from partition.sectors import cut
from tests.distributed.ranks import message, run_ranks
from tests.distributed.runs import fit
from tests.hostile.sectors import GRAPH, Sectors, good, sends_less, sends_to_itself, store


def train(ranks: Ranks, data: Path, run: Path) -> str | None:
    configuration = Configuration.model_validate(
        {
            "data": {"train": [data], "validation": 0},
            "model": {"hidden": 8, "layers": 2},
            "training": {"epochs": 1, "routing": "stored"},
            "run": {"folder": run},
        }
    )

    def work() -> None:
        events = together(lambda: Events(*split_validation([data], 0)))
        fit(configuration, ranks, events, None)

    return message(work)


@pytest.mark.parametrize("spoil", [sends_less, sends_to_itself])
def test_splits_that_disagree(tmp_path: Path, spoil: Callable[[Sectors], Sectors]) -> None:
    """Gloo ended the processes."""
    store(tmp_path / "data", spoil(good(2)))
    one, other = run_ranks(2, train, tmp_path / "data", tmp_path / "run")
    assert one == other
    assert "sector 0 sends" in one
    assert "remove manifest.json and run 'python -m partition" in one


def test_sectors_of_another_partition_of_the_event(tmp_path: Path) -> None:
    """Each of both cuts is good in itself."""
    store(tmp_path / "data", good(4))
    owner = torch.arange(1, GRAPH.n_nodes + 1) % 4
    other = store(tmp_path / "other", cut(GRAPH, owner, 4))
    other.replace(tmp_path / "data" / other.name)
    found = run_ranks(2, train, tmp_path / "data", tmp_path / "run")
    assert len(set(found)) == 1
    told = str(found[0])
    assert told.removeprefix("rank 0: ").startswith(f"{tmp_path / 'data' / other.name}")
    assert "\n" not in told
