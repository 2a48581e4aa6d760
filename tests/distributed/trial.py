"""An engine that takes steps over five events, some of them in sectors, in several micro-steps."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bigtrk.parallel.collectives import gather_items
from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Cut, Router
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.parallel.world import make_world
from bigtrk.training.data.batch import BatchMaker, Loader
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import scoring_router
from bigtrk.training.trainer import StepResult, StepRunner
from tests.distributed.graphs import sources
from tests.distributed.parity import in_dtype, owned_logits, stitched
from tests.distributed.runs import ENGINES

State = dict[str, Tensor]


def small(engine: str, layers: int = 2, **training: Any) -> Configuration:
    """Configures a small model under an engine of ENGINES."""
    model = {"hidden": 8, "layers": layers}
    return Configuration.model_validate(
        {"model": model, "engine": ENGINES[engine], "training": training}
    )


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two models have the same bits."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Trial:
    """An engine at work. cuts: those of the events; without them, as validation would cut them."""

    def __init__(
        self,
        ranks: Ranks,
        settings: Configuration,
        optimizer: OptimizerSettings,
        dtype: torch.dtype = torch.float32,
        factors: Mapping[str, float] | None = None,
        events: Sequence[Any] | None = None,
        cuts: Sequence[Cut] | None = None,
    ) -> None:
        self.events = list(events or sources())
        router = scoring_router(self.events, ranks.world_size)
        if cuts:
            router = Router([{cut: 1.0} for cut in cuts], ranks.world_size)
        world = make_world(ranks, router.num_ranks)
        model = build_model(settings).to(dtype)
        self.engine, self.name = make_engine(
            settings.engine, model, optimizer, world.stopwatch, factors or {}
        )
        loaded = Loader(BatchMaker(settings, world).of(self.events), world).load(
            router.route(range(len(self.events)))
        )
        self.shares = [in_dtype(share, dtype) for share in loaded]
        self.batches = [batch for share in self.shares for batch in share.batches]
        self.runner = StepRunner(self.engine, settings.training, world)

    def step(self, lr: float = 0.01, **options: Any) -> StepResult:
        return self.runner.run(range(len(self.events)), self.shares, lr, **options)

    def weights(self) -> State:
        return {name: value.clone() for name, value in self.engine.weights().items()}

    def logits(self) -> State:
        """Logits of all edges [E] as the model scores them now, by event. Collective."""
        scored = gather_items(owned_logits(self.engine.model, self.shares))
        graphs = [source.graph for source in self.events]
        return stitched((row for rows in scored for row in rows), graphs)
