"""The parity matrix of networks of PyG's layers: trained in sectors and on whole graphs at once,
against stock layers on whole graphs in one process (matrix.py).
"""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bigtrk.graphs.features import SCALES
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.settings import Configuration
from bigtrk.user_code import allow_code
from tests.distributed.graphs import EDGE_FEATURES, MemorySource, source
from tests.distributed.matrix import Case, Trial, run_trials
from tests.distributed.parity import worst_of_all
from tests.models.pyg_nets import LAYERS

FLOWS = ("source_to_target", "target_to_source")
RANKS = (2, 3, 4)
PRECISION = {"DDP": "fp64", "FSDP2": "fp64", "ZeRO-3": "fp32"}
STACK = ("GATv2Conv", "GCNConv", "SAGEConv")
NETWORKS = (*((name, name) for name in LAYERS), STACK)  # each layer twice, and three kinds
_NETS = "tests.models.pyg_nets"


@dataclass(frozen=True)
class PyGTrial(Trial):
    """A network of `layers` on as many ranks as there are sectors."""

    layers: tuple[str, ...] = ()
    flow: str = FLOWS[0]

    @property
    def num_ranks(self) -> list[int]:
        return [2, self.sectors]

    def worst(self, found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
        return worst_of_all(found, expected)

    def configuration(self, folder: Path) -> Configuration:
        engine = super().configuration(folder).engine
        options = {"module": f"{_NETS}:Net", "kinds": list(self.layers), "flow": self.flow}
        model = {"name": "pyg", "decoder_hidden": 8, "options": options}
        return Configuration.model_validate({"model": model, "engine": engine.model_dump()})

    def sources(self, kind: str) -> list[Any]:
        """Events cut in all sectors, in two, with an empty sector, and whole ones."""
        assert kind == "mixed"
        parts = self.sectors
        cuts = [(1, parts, parts), (2, 1, 1), (3, 2, 2), (4, parts, parts - 1), (5, 1, 1)]
        return [_to_scale(source(*event)) for event in cuts]


def _to_scale(event: MemorySource) -> MemorySource:
    """Gives an event edge features of the size that those of real events have.

    Those of 2000 scales, which `random_graph` draws, make gates and attention so steep that the
    rounding of float32 alone moves logits by 1e-4 and weights after five steps by 1e-2: layers
    without LayerNorm do not forgive it.
    """
    scales = torch.tensor([SCALES[name] for name in EDGE_FEATURES])
    return replace(
        event, graph=replace(event.graph, edge_features=event.graph.edge_features * scales)
    )


def trial(layers: tuple[str, ...], flow: str, engine: str, ranks: int) -> PyGTrial:
    """Makes a trial in the best precision that the engine has."""
    return PyGTrial(
        ranks, engine, PRECISION[engine], "layer", micro_steps=0, layers=layers, flow=flow
    )


def all_pyg_trials() -> list[PyGTrial]:
    return [trial(*of) for of in product(NETWORKS, FLOWS, PRECISION, RANKS)]


def run_pyg_trials(ranks: Ranks, trials: list[Trial]) -> list[Case]:
    """Runs `trials` and returns a case of each, on rank 0. Collective."""
    allow_code([_NETS])
    return run_trials(ranks, trials, ("mixed",))
