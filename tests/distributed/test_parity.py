"""Sectors with halo exchange train like the whole graph: loss, logits and every gradient.

The oracle is one process without process group, sectors or engine: the model on whole graphs and
the loss written out.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from bigtrk.graphs.event_graph import EventGraph, Target
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Cut
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.world import make_world
from bigtrk.training.data.batch import FALSE, BatchMaker
from bigtrk.training.evaluation.scoring import validate
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import scoring_router
from tests.distributed.graphs import source, sources
from tests.distributed.parity import Oracle, owned_logits, stitched, whole_gradients, worst
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES as ALL_ENGINES
from tests.distributed.trial import Trial


def configuration(
    recompute: str = "layer", name: str = "interaction", **training: Any
) -> Configuration:
    model = {"name": name, "hidden": 8, "recompute": recompute}
    if name != "mlp":
        model["layers"] = 3
    return Configuration.model_validate({"model": model, "training": training})


def sector_step(
    ranks: Ranks,
    settings: Configuration,
    events: list[Any] | None = None,
    cuts: list[Cut] | None = None,
) -> dict[str, Any]:
    """The same step in sectors under DDP: loss, gradients, and this rank's owned logits."""
    trial = Trial(ranks, settings, OptimizerSettings(), torch.float64, events=events, cuts=cuts)
    trial.engine.step = lambda lr: None  # type: ignore[method-assign]  # noqa: ARG005  # keeps the gradients
    result, model = trial.step(0.0), trial.engine.model
    losses = {"loss": result.loss, "pt_loss": result.pt_loss}
    gradients, logits = whole_gradients(model), owned_logits(model, trial.shares)
    return {**losses, "gradients": gradients, "logits": logits}


def check_step(results: list[dict[str, Any]], oracle: Oracle, graphs: list[EventGraph]) -> None:
    """Compares all ranks' step with the oracle's."""
    for result in results:
        assert result["loss"] == pytest.approx(oracle.loss(), rel=1e-12)
        if result["pt_loss"] is not None:
            assert result["pt_loss"] == pytest.approx(oracle.pt_loss(), rel=1e-12)
        assert worst(result["gradients"], oracle.gradients()) < 1e-10
    scored = stitched((row for result in results for row in result["logits"]), graphs)
    assert worst(scored, oracle.logits()) < 1e-10


def validation_scores(ranks: Ranks, **weights: float) -> dict[str, Any]:
    settings = configuration(pt_weight=0.3)
    target = Target(pt_min=1.0, **weights)
    settings, events = settings.model_copy(update={"target": target}), sources()
    router = scoring_router(events, ranks.world_size)
    maker = BatchMaker(settings, make_world(ranks, router.num_ranks))
    scores = validate(build_model(settings), maker, events, router, settings.training).model_dump()
    cuts = scores.pop("cuts")
    return {**scores, **cuts}


def differently_weighted(ranks: Ranks) -> list[dict[str, Any]]:
    return [validation_scores(ranks), validation_scores(ranks, weight=3.0, other_weight=0.5)]


def test_metrics_do_not_depend_on_the_cut_nor_on_weights() -> None:
    alone = run_ranks(1, differently_weighted)[0]
    for results in run_ranks(3, differently_weighted):
        for result, expected in zip(results, alone, strict=True):
            assert result == pytest.approx(expected, rel=1e-6)
    plain, weighted = alone
    assert plain["log_pt_error"] is not None
    assert plain.pop("loss") != weighted.pop("loss")
    assert plain == weighted


ENGINES = ("coalesced", "FSDP2", "zero0", "zero1", "zero2", "zero3", "zero3_offload")
MODELS = {
    "interaction": configuration(),
    "attention": configuration("layer", "attention"),
    "mlp": configuration(name="mlp"),
}


def engine_losses(ranks: Ranks, engines: Sequence[str]) -> dict[tuple[str, str], list[float]]:
    """Returns the losses of three AdamW steps in float32, by engine and model: each engine trains
    one of the models, DDP all.
    """
    optimizer, found = OptimizerSettings(gradient_clipping=0.5), {}
    for i, engine in enumerate(engines):
        for model in MODELS if engine == "DDP" else [list(MODELS)[i % len(MODELS)]]:
            chosen = EngineSettings.model_validate(ALL_ENGINES[engine])
            settings = MODELS[model].model_copy(update={"engine": chosen})
            trial = Trial(ranks, settings, optimizer)
            found[engine, model] = [trial.step().loss for _ in range(3)]
    return found


def test_every_engine_trains_alike() -> None:
    [alone] = run_ranks(1, engine_losses, ["DDP"])
    for losses in run_ranks(2, engine_losses, ENGINES):
        assert {engine for engine, _ in losses} == set(ENGINES)
        for (engine, model), found in losses.items():
            assert found == pytest.approx(alone["DDP", model], rel=1e-5), (engine, model)


def naive_step(ranks: Ranks) -> dict[str, Any]:
    settings = configuration()
    settings = settings.model_copy(
        update={"data": settings.data.model_copy(update={"sectors": "naive"})}
    )
    return sector_step(ranks, settings, [source(2, 2)])


def test_naive_sectors_train_on_the_graph_without_its_cut_edges() -> None:
    event = source(2, 2)
    kept = event.owner[event.graph.edge_index[0]] == event.owner[event.graph.edge_index[1]]
    inside = replace(
        event.graph,
        edge_index=event.graph.edge_index[:, kept],
        edge_features=event.graph.edge_features[kept],
        y=event.graph.y[kept],
    )
    oracle = Oracle(configuration(), [inside])
    results = run_ranks(2, naive_step)
    for result in results:
        assert result["loss"] == pytest.approx(oracle.loss(), rel=1e-12)
        assert worst(result["gradients"], oracle.gradients()) < 1e-10
    cut_edges = set(torch.nonzero(~kept).flatten().tolist())
    scored = [row for result in results for row in result["logits"]]
    for _, edge_id, logits in scored:
        for edge, logit in zip(edge_id.tolist(), logits.tolist(), strict=True):
            assert (logit == FALSE) == (edge in cut_edges)
