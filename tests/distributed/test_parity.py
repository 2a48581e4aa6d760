"""Sectors with halo exchange train like the whole graph: loss, logits and every gradient.

The oracle is one process without process group, sectors or engine: the model on whole graphs and
the loss written out.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from bigtrk.graphs.target import Target
from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Cut, Router
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.world import make_world
from bigtrk.training.data.batch import FALSE, BatchMaker, Loader
from bigtrk.training.evaluation.scoring import validate
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from bigtrk.training.step import StepRunner
from bigtrk.training.steps.routers import scoring_router
from tests.distributed.graphs import source, sources
from tests.distributed.parity import (
    Oracle,
    in_dtype,
    owned_logits,
    stitched,
    whole_gradients,
    worst,
)
from tests.distributed.ranks import run_all, run_ranks


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
    events = events or sources()
    router = scoring_router(events, ranks.world_size)
    if cuts:
        router = Router([{cut: 1.0} for cut in cuts], ranks.world_size)
    world = make_world(ranks, router.num_ranks)
    maker = BatchMaker(settings, world)
    engine, _ = make_engine(
        settings.engine, build_model(settings).double(), OptimizerSettings(), world.stopwatch
    )
    engine.step = lambda lr: None  # type: ignore[method-assign]  # noqa: ARG005  # keeps the gradients
    loader = Loader(maker.of(events), world)
    shares = [
        in_dtype(share, torch.float64) for share in loader.load(router.route(range(len(events))))
    ]
    runner = StepRunner(engine, settings.training, world)
    result = runner.run(range(len(events)), shares, lr=0.0)
    model = engine.model
    gradients, logits = whole_gradients(model), owned_logits(model, shares)
    losses = {"loss": result.loss, "pt_loss": result.pt_loss}
    return {**losses, "gradients": gradients, "logits": logits}


SECTOR_STEPS = {
    2: {
        "recomputed": configuration("layer"),
        "per edge": configuration("none", step_loss="per_edge"),
        "attention": configuration("none", "attention"),
    },
    3: {
        "recomputed, pT": configuration("layer", pt_weight=0.3),
        "attention, recomputed": configuration("layer", "attention"),
    },
}


@cache
def steps_of(world_size: int) -> dict[str, list[dict[str, Any]]]:
    cases = SECTOR_STEPS[world_size]
    return run_all(world_size, {name: (sector_step, (case,)) for name, case in cases.items()})


@pytest.mark.parametrize(
    ("world_size", "name"), [(n, name) for n, cases in SECTOR_STEPS.items() for name in cases]
)
def test_sectors_equal_the_whole_graph(world_size: int, name: str) -> None:
    settings, graphs = SECTOR_STEPS[world_size][name], [event.graph for event in sources()]
    oracle = Oracle(settings, graphs)
    results = steps_of(world_size)[name]
    for result in results:
        assert result["loss"] == pytest.approx(oracle.loss(), rel=1e-12)
        if settings.training.pt_weight:
            assert result["pt_loss"] == pytest.approx(oracle.pt_loss(), rel=1e-12)
        else:
            assert result["pt_loss"] is None
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


MODELS = {
    "interaction": configuration(),
    "attention": configuration("none", "attention"),
    "attention, recomputed": configuration("layer", "attention"),
    "mlp": configuration(name="mlp"),
}


def engine_losses(ranks: Ranks, engine: EngineSettings) -> dict[str, list[float]]:
    """Returns each model's losses of four AdamW steps over the five events, in float32."""
    return {name: losses_of(ranks, engine, settings) for name, settings in MODELS.items()}


def losses_of(ranks: Ranks, engine: EngineSettings, settings: Configuration) -> list[float]:
    events = sources()
    router = scoring_router(events, ranks.world_size)
    world = make_world(ranks, router.num_ranks)
    maker = BatchMaker(settings, world)
    optimizer = OptimizerSettings(gradient_clipping=0.5)
    made, _ = make_engine(engine, build_model(settings), optimizer, world.stopwatch)
    loader = Loader(maker.of(events), world)
    runner = StepRunner(made, settings.training, world)
    order = [[0, 1], [2, 3, 4], [1, 0], [4, 3]]
    return [runner.run(step, loader.load(router.route(step)), lr=1e-2).loss for step in order]


@pytest.fixture(scope="module")
def single_rank_losses() -> dict[str, list[float]]:
    losses: dict[str, list[float]] = run_ranks(1, engine_losses, EngineSettings())[0]
    return losses


ENGINES = {
    "ddp": EngineSettings(),
    "coalesced": EngineSettings(coalesced=True),
    "fsdp2": EngineSettings(name="fsdp2"),
    **{
        name: EngineSettings(name="deepspeed", ds_config=name)
        for name in ("zero0", "zero1", "zero2", "zero3", "zero3_offload")
    },
}


SLOW = ("zero3_offload",)
QUICK = tuple(name for name in ENGINES if name not in SLOW)


@cache
def trained_by(names: tuple[str, ...]) -> dict[str, list[dict[str, list[float]]]]:
    """Returns the losses by engine, rank and model."""
    return run_all(2, {name: (engine_losses, (ENGINES[name],)) for name in names})


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_every_engine_trains_alike(name: str, single_rank_losses: dict[str, list[float]]) -> None:
    for losses in trained_by(QUICK if name in QUICK else SLOW)[name]:
        for model, expected in single_rank_losses.items():
            assert losses[model] == pytest.approx(expected, rel=1e-5), model


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
