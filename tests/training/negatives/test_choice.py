"""The edges that are chosen, their weights and their loss, against a plain choice of all edges."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from bigtrk.graphs.event_graph import whole_sector
from bigtrk.parallel.halo import no_halo
from bigtrk.parallel.world import make_world
from bigtrk.training import loss
from bigtrk.training.data.batch import Batch, BatchMaker, Share, compute, run_model
from bigtrk.training.loss import Draw
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration, NegativeSettings
from tests.distributed.graphs import random_graph
from tests.distributed.ranks import ALONE

DRAW = Draw(3, 5)


def configuration(**sections: Any) -> Configuration:
    return Configuration.model_validate({"model": {"name": "mlp", "hidden": 8}, **sections})


@pytest.fixture(scope="module")
def maker() -> BatchMaker:
    # Some true edges are masked, as those of soft particles are.
    made = configuration(target={"pt_min": 0.5, "hits_min": 0, "other_weight": 0.0})
    return BatchMaker(made, make_world(ALONE, []))


@pytest.fixture(scope="module")
def batch(maker: BatchMaker) -> Batch:
    return maker.alone(2, whole_sector(random_graph(4, 60, 400))).batches[0]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return build_model(configuration())


def alone(batch: Batch) -> Share:
    return Share([batch], None)


def choose_edges(model: nn.Module, batch: Batch, some: NegativeSettings, draw: Draw) -> Batch:
    return loss.choose_edges(model, alone(batch), some, draw).batches[0]


def places(chosen: Batch, batch: Batch) -> list[int]:
    """The place of each chosen edge in the batch: their features tell them."""
    rows = [tuple(row) for row in batch.edge_features.tolist()]
    assert len(set(rows)) == len(rows)
    return [rows.index(tuple(row)) for row in chosen.edge_features.tolist()]


def split(batch: Batch) -> tuple[list[int], list[int]]:
    """The places of the positives and of the negatives."""
    label, weight = batch.truth.label.tolist(), batch.truth.weight.tolist()
    trained = [i for i, w in enumerate(weight) if w > 0]
    return [i for i in trained if label[i] > 0], [i for i in trained if label[i] == 0]


@pytest.mark.parametrize(("hard", "easy"), [(1.0, 0.5), (2.0, 0.0), (0.0, 1.5), (0.25, 1e6)])
def test_chosen_are_all_positives_the_hardest_and_some_others(
    model: nn.Module, batch: Batch, hard: float, easy: float
) -> None:
    pt = torch.arange(len(batch.is_target)) / 8
    batch = replace(batch, truth=replace(batch.truth, target=batch.is_target, pt=pt))
    chosen = choose_edges(model, batch, NegativeSettings(hard=hard, easy=easy), DRAW)
    found = places(chosen, batch)
    assert found == sorted(found)
    positives, negatives = split(batch)
    assert len(positives) + len(negatives) < len(batch.truth.label), "some are masked"
    scores = run_model(model, alone(batch))[0].tolist()
    by_score = sorted(negatives, key=lambda i: -scores[i])
    hardest = by_score[: round(hard * len(positives))]
    others = by_score[len(hardest) :]
    drawn = [i for i in found if i not in {*positives, *hardest}]
    assert set(found) >= {*positives, *hardest}
    assert len(drawn) == min(round(easy * len(positives)), len(others))
    assert set(drawn) <= set(others)
    false = {*hardest, *drawn}
    each = len(negatives) / len(false)
    weight = batch.truth.weight.tolist()
    expected = [weight[i] * (each if i in false else 1) for i in found]
    assert chosen.truth.weight.tolist() == pytest.approx(expected)
    assert chosen.truth.counts.tolist() == [len(positives), len(negatives)]
    for name in ("label", "target", "pt"):
        column = getattr(batch.truth, name)
        assert getattr(chosen.truth, name).tolist() == column[found].tolist()
    assert chosen.is_target.tolist() == batch.is_target[found].tolist()
    assert chosen.weights.tolist() == batch.weights[found].tolist()


def test_the_draw_decides(model: nn.Module, batch: Batch) -> None:
    some = NegativeSettings(easy=0.5)
    again = [places(choose_edges(model, batch, some, DRAW), batch) for _ in range(2)]
    assert again[0] == again[1]
    for other in (Draw(3, 6), Draw(4, 5)):
        assert places(choose_edges(model, batch, some, other), batch) != again[0]
    elsewhere = replace(batch, event=1)
    assert places(choose_edges(model, elsewhere, some, DRAW), batch) != again[0]


def test_without_positives_there_are_negatives_of_one(model: nn.Module, batch: Batch) -> None:
    none = replace(batch, truth=replace(batch.truth, label=torch.zeros_like(batch.truth.label)))
    chosen = choose_edges(model, none, NegativeSettings(hard=3, easy=2), DRAW)
    assert chosen.edge_index.shape == (2, 5)


def test_sectors_of_a_share_have_their_own_chosen(model: nn.Module, batch: Batch) -> None:
    """Edges are chosen as alone, whatever the other sectors are."""
    some = NegativeSettings(hard=1, easy=0.5)
    elsewhere = replace(batch, event=1)
    share = Share([batch, elsewhere], no_halo(make_world(ALONE, [])).with_empty(1))
    found = loss.choose_edges(model, share, some, DRAW).batches
    for chosen, whole in zip(found, share.batches, strict=True):
        alone_too = choose_edges(model, whole, some, DRAW)
        assert torch.equal(chosen.edge_index, alone_too.edge_index)
        assert torch.equal(chosen.truth.weight, alone_too.truth.weight)


def test_an_empty_sector_takes_part(model: nn.Module, maker: BatchMaker) -> None:
    chosen = choose_edges(model, maker.empty().batches[0], NegativeSettings(hard=3, easy=2), DRAW)
    assert chosen.edge_index.shape == (2, 0)
    [(logits, _)] = compute(model, alone(chosen))
    logits.sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())
    model.zero_grad()
