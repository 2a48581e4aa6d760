"""Stages 3 and 4 applied: a trained edge model, and the cut that its validation chose.

Shapes: N hits, E edges.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.sector import Sector, whole_sector
from bigtrk.models.protocol import Exchange, SectorInputs, no_exchange
from bigtrk.models.settings import ModelConfig
from bigtrk.pipeline.options import Precision
from bigtrk.pipeline.trained import CPU, load_trained, share_name
from bigtrk.records.run_folder import read_run
from bigtrk.tracks.edge_metrics import KEPT
from bigtrk.training.data.features import ModelFeatures, load_features
from bigtrk.training.model_files import StoredModel, build_model


@dataclass(frozen=True)
class EdgeScorer:
    """The edge model that a run trained, and the features that it reads.

    digest: of its weights, for records of what was made with it.
    """

    model: nn.Module
    features: ModelFeatures
    digest: str

    def __call__(self, graph: EventGraph) -> Tensor:
        """Scores the edges of a whole graph, with truth or without: [E] float64 in [0, 1].

        Raises:
            InputError: the graph lacks a feature.
        """
        sector = whole_sector(graph)
        scores = torch.empty(graph.n_edges, dtype=torch.float64)
        scores[sector.edge_id] = self.scores(self.inputs(sector), no_exchange)
        return scores

    def inputs(self, sector: Sector) -> SectorInputs:
        """Makes what the model reads of a sector, where its weights are and in their type.

        Raises:
            InputError: the sector lacks a feature, or one of the user's own fails.
        """
        weight = next(self.model.parameters())
        read = self.features.computed.of(sector)
        x, edges = self.features.of_nodes(read), self.features.of_edges(read)
        edge_index = sector.edge_index.to(weight.device)
        return SectorInputs(x.to(weight), edges.to(weight), edge_index, sector.n_owned)

    def scores(self, inputs: SectorInputs, exchange: Exchange) -> Tensor:
        """Scores the edges of a sector: [E] float64 in [0, 1], in the host's memory."""
        with torch.no_grad():
            made = self.model(*inputs, exchange)
        logits = made if made.dim() == 1 else made[:, 0]
        return torch.sigmoid(logits.cpu().double())


def load_scorer(
    run: Path, device: torch.device = CPU, precision: Precision | None = None
) -> EdgeScorer:
    """Loads the edge model that `run` ended with, on `device`; it computes as it was trained, or
    else in `precision`.

    Raises:
        InputError: the folder has no model, or one that embeds hits.
    """
    stored, digest = load_trained(run, "edge", device)
    features = load_features(stored.configuration.data, stored.measured)
    model = stored.model if precision is None else _computing_in(precision, stored).to(device)
    return EdgeScorer(model.eval(), features, digest)


def _computing_in(precision: Precision, stored: StoredModel) -> nn.Module:
    """Makes a model with the same weights that computes in `precision`."""
    rows = "bf16" if precision is Precision.BF16 else "fp32"
    settings = stored.configuration.model
    if rows != settings.precision:
        settings = _set_to(rows, settings)
    model = build_model(stored.configuration.model_copy(update={"model": settings}))
    model.load_state_dict(stored.model.state_dict())
    return model.double() if precision is Precision.FLOAT64 else model


def _set_to(rows: str, settings: ModelConfig) -> ModelConfig:
    """Returns the settings of a model that computes in `rows`.

    Raises:
        InputError: the model has no such setting.
    """
    if "precision" not in type(settings).model_fields:
        raise InputError(
            f"--precision {rows}: {settings.name} computes as its class says; leave it out"
        )
    return settings.model_copy(update={"precision": rows})


def cut_for(run: Path, efficiency: float) -> float:
    """Returns the score that a share `efficiency` of the target edges of the run's validation
    events reach.

    Raises:
        InputError: the run has no validation, or did not look for that share.
    """
    name = share_name(KEPT, efficiency, "--cut")
    epochs = read_run(run).epochs
    found = epochs[-1].validation if epochs else None
    if found is None or name not in found.cuts:
        raise InputError(
            f"{run}: its validation found no cut; train with data.validation=1 or more, or give "
            f"--cut"
        )
    return found.cuts[name]
