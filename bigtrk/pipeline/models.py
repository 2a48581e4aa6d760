"""The trained models of a pipeline, applied: the embedding of hits, and the scores of edges.

Shapes: N hits, E edges, D dimensions.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigtrk.config import nearest
from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.graphs.builders.builder import hit_columns
from bigtrk.graphs.event_graph import EventGraph, Sector, whole_sector
from bigtrk.graphs.features import StoredColumns, as_tensor, available
from bigtrk.models.options import Kind
from bigtrk.models.protocol import Exchange, SectorInputs, no_exchange
from bigtrk.models.settings import ModelConfig
from bigtrk.pipeline.options import Precision
from bigtrk.records.run_folder import read_run
from bigtrk.tracks import edge_metrics
from bigtrk.training.data.batch import ModelFeatures, load_features
from bigtrk.training.embedding import KEPT
from bigtrk.training.model_files import StoredModel, build_model, load_model
from bigtrk.training.run_folder import weights_of
from bigtrk.user_code import names_code

CPU = torch.device("cpu")
_DOES = {"hit": "embeds hits", "edge": "classifies edges"}
_NAMES = {"hit": "model.name=embedding", "edge": "model.name=mlp, or another for edges"}


def load_trained(run: Path, kind: Kind, device: torch.device) -> tuple[StoredModel, str]:
    """Loads the model that `run` ended with on `device`, and the digest of its weights; raises
    InputError where there is none of this kind.
    """
    stored = load_model(run)
    model = stored.configuration.model
    if model.kind != kind:
        raise InputError(
            f"{run}: its model ({model.name}) {_DOES[model.kind]}; name a run that was trained "
            f"with {_NAMES[kind]}"
        )
    stored.model.to(device).eval()
    return stored, hashlib.sha256(weights_of(run).read_bytes()).hexdigest()


def share_name(kept: Mapping[str, float], efficiency: float, instead: str) -> str:
    """Returns the name of a share of target edges among those that validations look for; raises
    InputError where none is so, which says what to give `instead`.
    """
    names = {share: name for name, share in kept.items()}
    if efficiency not in names:
        shares = ", ".join(f"{share:g}" for share in names)
        raise InputError(f"--efficiency {efficiency:g}: choose one of {shares}, or give {instead}")
    return names[efficiency]


@dataclass(frozen=True)
class Embedding:
    """The embedding that a run trained, and the features of hits that it reads.

    digest: of its weights, for records of graphs and tracks made with it.
    """

    model: nn.Module
    features: ModelFeatures
    digest: str

    def __call__(self, event: Event) -> NDArray[np.float32]:
        """Embeds the hits of an event: [N, D].

        Raises:
            InputError: the event lacks a feature, as those of clusters without cells, or a hit is
                where float32 has no numbers.
        """
        columns = hit_columns(event)
        for name in self.features.data.node_features:
            if not names_code(name) and name not in available(list(columns)):
                raise InputError(
                    f"{event.name}: has no feature {name!r}, which the embedding reads"
                    f"{nearest(name, list(columns))}; use events with cells, or train it without"
                )
        with np.errstate(over="ignore"):  # a hit that is told below
            hits = StoredColumns(as_tensor(columns), tuple(columns))
            hit_id = torch.from_numpy(event.hits["hit_id"].astype(np.int64))
            x = self.features.of_hits(hits, f"{event.name}: hit", hit_id)
        weight = next(self.model.parameters())
        no_edges = torch.empty(2, 0, dtype=torch.int64, device=weight.device)
        no_features = weight.new_empty(0, len(self.features.data.edge_features))
        with torch.no_grad():
            made: Tensor = self.model(x.to(weight), no_features, no_edges, len(x), no_exchange)
        places: NDArray[np.float32] = made.float().cpu().numpy()
        lost = np.flatnonzero(~np.isfinite(places).all(axis=1))
        if len(lost):
            hit = event.hits["hit_id"][lost[0]]
            raise InputError(
                f"{event.name}: hit {hit} has no place in the embedding, as its coordinates are "
                f"too large; correct them (mm)"
            )
        return places


def load_embedding(run: Path, device: torch.device = CPU) -> Embedding:
    """Loads the embedding that `run` ended with; raises InputError where it has none."""
    stored, digest = load_trained(run, "hit", device)
    features = load_features(stored.configuration.data, stored.measured)
    return Embedding(stored.model, features, digest)


def radius_for(run: Path, efficiency: float) -> float:
    """Returns the radius that keeps a share `efficiency` of the target edges of validation events;
    raises InputError where no validation looked for that.
    """
    name = share_name(KEPT, efficiency, "--radius")
    epochs = read_run(run).epochs
    found = epochs[-1].embedding if epochs else None
    if found is None or name not in found.at:
        raise InputError(
            f"{run}: its validation found no radius; train with data.validation=1 or more, or give "
            f"--radius"
        )
    return found.at[name].radius


@dataclass(frozen=True)
class EdgeScorer:
    """The edge model that a run trained, and the features that it reads.

    digest: of its weights, for records of graphs and tracks made with it.
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
    """Loads the edge model that `run` ended with, to compute in `precision`, or as it was trained;
    raises InputError where it has none.
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
    if "precision" not in type(settings).model_fields:
        raise InputError(
            f"--precision {rows}: {settings.name} computes as its class says; leave it out"
        )
    return settings.model_copy(update={"precision": rows})


def cut_for(run: Path, efficiency: float) -> float:
    """Returns the score that a share `efficiency` of the target edges of validation events reach;
    raises InputError where no validation looked for that.
    """
    name = share_name(edge_metrics.KEPT, efficiency, "--cut")
    epochs = read_run(run).epochs
    found = epochs[-1].validation if epochs else None
    if found is None or name not in found.cuts:
        raise InputError(
            f"{run}: its validation found no cut; train with data.validation=1 or more, or give "
            f"--cut"
        )
    return found.cuts[name]
