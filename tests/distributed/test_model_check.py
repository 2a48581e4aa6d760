"""Ranks whose models would wait for each other end in one line, before they train."""

from pathlib import Path
from unittest import mock

import torch
from torch import nn

from bigtrk.models.settings import InteractionGNNConfig, make_model
from bigtrk.parallel.ranks import Ranks
from bigtrk.proof.prove import check_on_all_ranks
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import message, run_ranks
from tests.distributed.runs import settings, train, write_events


def checked(ranks: Ranks, layers: list[int]) -> str | None:
    config = InteractionGNNConfig(hidden=4, layers=layers[ranks.rank])
    model = make_model(config, 4, 6)
    return message(lambda: check_on_all_ranks(model, 4, 6, config))


def test_other_numbers_of_exchanges_are_told_on_all_ranks() -> None:
    assert run_ranks(2, checked, [3, 2]) == 2 * [
        "rank 1 has another number of halo exchanges in its model than rank 0: 1 of widths [4] "
        "instead of 2 of widths [4, 4]; start all ranks with the same values"
    ]
    assert run_ranks(2, checked, [2, 2]) == [None, None]


def trained_with_others(ranks: Ranks, folder: Path) -> str | None:
    """A run whose model on rank 1 gives a column for each edge."""

    def other(configuration: Configuration) -> nn.Module:
        model = build_model(configuration)
        if ranks.rank == 1:
            model.forward = lambda _, edge_features, *__: torch.ones(len(edge_features), 1)
        return model

    with mock.patch("bigtrk.training.model_files.build_model", other):
        return message(lambda: train(ranks, settings(folder, folder / "run", 1, {"name": "ddp"})))


def test_a_run_ends_before_its_first_step(tmp_path: Path) -> None:
    write_events(tmp_path, 3)
    lines = run_ranks(2, trained_with_others, tmp_path)
    assert lines[0] == lines[1]
    assert lines[0].startswith("rank 1: InteractionGNN: returns a tensor of shape [")
    assert not (tmp_path / "run").exists()
