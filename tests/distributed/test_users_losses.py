"""Losses in sectors are those of their formula on whole graphs, at every number of ranks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.graphs.event_graph import EventGraph
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import make_world
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.evaluation.scoring import validate
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import scoring_router
from bigtrk.user_code import allow_code
from tests.distributed.graphs import sources
from tests.distributed.parity import Oracle, known_log_pt, worst
from tests.distributed.ranks import run_ranks
from tests.distributed.test_parity import sector_step
from tests.training.user_functions import HERE

PT_MIN = 1.0
# What a test's own formula gets of a graph: logits, truth, target [E], pT [E] (0 if not known).
Formula = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


def focal(logits: Tensor, y: Tensor, _: Tensor, __: Tensor, ___: float) -> Tensor:
    entropy = binary_cross_entropy_with_logits(logits, y, reduction="none")
    score = logits.sigmoid()
    p_t = score * y + (1 - score) * (1 - y)
    made: Tensor = entropy * (1 - p_t) ** 1.5
    return made


def squared(logits: Tensor, y: Tensor, target: Tensor, pt: Tensor, share: float) -> Tensor:
    made: Tensor = (logits.sigmoid() - y) ** 2 * (1 + pt) * (1 + target) / (0.1 + share)
    return made


class FormulaOracle(Oracle):
    """The oracle with another formula for an edge, without the true edges outside the target;
    positives and negatives are each divided by their own number if the settings balance classes.
    """

    def __init__(self, settings: Configuration, graphs: list[EventGraph], formula: Formula) -> None:
        super().__init__(settings, graphs)
        self._formula, self._equal = formula, settings.training.class_balance == "equal"

    def _loss(self) -> Tensor:
        return torch.stack([self._of_event(graph) for graph in self._graphs]).mean()

    def _of_event(self, graph: EventGraph) -> Tensor:
        assert graph.y is not None
        assert graph.particle_id is not None
        assert graph.particles is not None
        pt_of = dict(
            zip(graph.particles.particle_id.tolist(), graph.particles.pt.tolist(), strict=True)
        )
        pt = torch.zeros(graph.n_edges, dtype=torch.float64)
        for edge in known_log_pt(graph):
            pt[edge] = pt_of[int(graph.particle_id[graph.edge_index[1, edge]])]
        target = graph.y & (pt >= PT_MIN)
        kept = target | ~graph.y
        positives, negatives = int(target.sum()), int((~graph.y).sum())
        share = positives / (positives + negatives)
        each = self._formula(self._score(graph)[0], target.double(), target, pt, share)
        total = each.new_full((graph.n_edges,), positives + negatives)
        if self._equal:
            total = torch.where(target, positives, negatives).clamp(min=1)
        return (each / total)[kept].sum()


LOSSES: dict[str, tuple[dict[str, Any], Formula]] = {
    "focal": ({"loss": "focal", "focal_gamma": 1.5}, focal),
    "own": ({"loss": f"{HERE}:squared", "class_balance": "equal"}, squared),
}


def loss_settings(name: str) -> Configuration:
    return Configuration.model_validate(
        {
            "model": {"hidden": 8, "layers": 2},
            "target": {"pt_min": PT_MIN},
            "training": LOSSES[name][0],
        }
    )


def validated(ranks: Ranks, settings: Configuration) -> float:
    events = sources()
    router = scoring_router(events, ranks.world_size)
    maker = BatchMaker(settings, make_world(ranks, router.num_ranks))
    loss = validate(build_model(settings), maker, events, router, settings.training).loss
    assert loss is not None
    return loss


def steps_of_losses(ranks: Ranks) -> dict[str, dict[str, Any]]:
    allow_code([HERE])
    every = {name: loss_settings(name) for name in LOSSES}
    return {
        name: {**sector_step(ranks, settings), "validation": validated(ranks, settings)}
        for name, settings in every.items()
    }


def test_losses_in_sectors_equal_their_formula_on_whole_graphs() -> None:
    graphs = [event.graph for event in sources()]
    results = run_ranks(3, steps_of_losses)
    for name, (_, formula) in LOSSES.items():
        oracle = FormulaOracle(loss_settings(name), graphs, formula)
        for result in results:
            assert result[name]["loss"] == pytest.approx(oracle.loss(), rel=1e-12)
            assert result[name]["validation"] == pytest.approx(oracle.loss(), rel=1e-5)
            assert worst(result[name]["gradients"], oracle.gradients()) < 1e-10
