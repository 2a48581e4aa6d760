"""Applies the trained models of a pipeline: the embedding of hits, and the scorers of edges.

Shapes: N hits, E edges, D dimensions.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.graphs.builders.builder import hit_columns
from bigtrk.graphs.event_graph import EventGraph, Sector, whole_sector
from bigtrk.graphs.features import StoredColumns, as_tensor, available
from bigtrk.models.options import Kind
from bigtrk.models.protocol import Exchange, SectorInputs, no_exchange
from bigtrk.pipeline.options import Precision
from bigtrk.records.metrics import EpochRecord, Neighbourhood
from bigtrk.records.run_folder import read_run
from bigtrk.tracks import edge_metrics
from bigtrk.training.data.batch import ModelFeatures, load_features
from bigtrk.training.embedding import KEPT
from bigtrk.training.model_files import StoredModel, build_model, load_model
from bigtrk.training.run_folder import weights_of
from bigtrk.user_code import names_code

CPU = torch.device("cpu")
Value = TypeVar("Value")
_DOES = {"hit": "embeds hits", "edge": "classifies edges"}
_NAMES = {"hit": "model.name=embedding", "edge": "a model that classifies edges, such as mlp"}


def load_trained(run: Path, kind: Kind, device: torch.device) -> tuple[StoredModel, str]:
    """Loads a run's final model and its digest; InputError if it has none of this kind."""
    stored = load_model(run)
    model = stored.configuration.model
    if model.kind != kind:
        raise InputError(
            f"{run}: its model ({model.name}) {_DOES[model.kind]}; name a run with {_NAMES[kind]}"
        )
    stored.model.to(device).eval()
    return stored, hashlib.sha256(weights_of(run).read_bytes()).hexdigest()


@dataclass(frozen=True)
class TrainedModel:
    """A trained model, the features that it reads, and the digest of its weights."""

    model: nn.Module
    features: ModelFeatures
    digest: str


class Embedding(TrainedModel):
    """The trained embedding of hits."""

    def __call__(self, event: Event) -> NDArray[np.float32]:
        """Embeds the hits of an event: [N, D]. Raises InputError if the event lacks a feature, such
        as cluster features if it has no cells, or if a hit's embedding is not finite.
        """
        columns = hit_columns(event)
        for name in self.features.data.node_features:
            if not names_code(name) and name not in available(list(columns)):
                raise InputError(
                    f"{event.name}: has no feature {name!r}, which the embedding reads; use "
                    f"events that have it, or train an embedding without it"
                )
        with np.errstate(over="ignore"):  # such a hit is named below
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
                f"{event.name}: the embedding of hit {hit} is NaN or infinite; correct this row"
            )
        return places


def load_embedding(run: Path, device: torch.device = CPU) -> Embedding:
    """Loads the final embedding of `run`; InputError if it has none."""
    stored, digest = load_trained(run, "hit", device)
    features = load_features(stored.configuration.data, stored.measured)
    return Embedding(stored.model, features, digest)


def radius_for(run: Path, efficiency: float) -> float:
    """Returns the radius that keeps a share `efficiency` of the validation's target edges."""

    def at(epoch: EpochRecord) -> dict[str, Neighbourhood] | None:
        return epoch.embedding.at if epoch.embedding else None

    return _validated(run, efficiency, KEPT, "radius", at).radius


def cut_for(run: Path, efficiency: float) -> float:
    """Returns the score cut that keeps a share `efficiency` of the validation's target edges."""

    def cuts(epoch: EpochRecord) -> dict[str, float] | None:
        return epoch.validation.cuts if epoch.validation else None

    return _validated(run, efficiency, edge_metrics.KEPT, "score cut", cuts)


def _validated(
    run: Path,
    efficiency: float,
    kept: Mapping[str, float],
    what: str,
    values: Callable[[EpochRecord], dict[str, Value] | None],
) -> Value:
    """Returns the value that the last validation found for `efficiency`, one of the shares in
    `kept`; InputError if it found none.
    """
    names, option = {share: name for name, share in kept.items()}, "--" + what.replace(" ", "-")
    if efficiency not in names:
        shares = ", ".join(f"{share:g}" for share in names)
        raise InputError(f"--efficiency {efficiency:g}: choose one of {shares}, or give {option}")
    epochs = read_run(run).epochs
    found = values(epochs[-1]) if epochs else None
    if not found or names[efficiency] not in found:
        raise InputError(
            f"{run}: no validation has found a {what} for --efficiency {efficiency:g}; give "
            f"{option}, or train with data.validation=1 or more"
        )
    return found[names[efficiency]]


class EdgeScorer(TrainedModel):
    """The trained edge model of a run."""

    def __call__(self, graph: EventGraph) -> Tensor:
        """Scores a whole graph: [E] float64 in [0, 1]; InputError if it lacks a feature."""
        sector = whole_sector(graph)
        scores = torch.empty(graph.n_edges, dtype=torch.float64)
        scores[sector.edge_id] = self.scores(self.inputs(sector), no_exchange)
        return scores

    def inputs(self, sector: Sector) -> SectorInputs:
        """Makes the model's inputs from a sector, with the device and dtype of its weights. Raises
        InputError if the sector lacks a feature, or a user's feature function fails.
        """
        weight = next(self.model.parameters())
        read = self.features.computed.of(sector)
        x, edges = self.features.of_nodes(read), self.features.of_edges(read)
        edge_index = sector.edge_index.to(weight.device)
        return SectorInputs(x.to(weight), edges.to(weight), edge_index, sector.n_owned)

    def scores(self, inputs: SectorInputs, exchange: Exchange) -> Tensor:
        """Scores a sector's edges: [E] float64 in [0, 1], on the CPU. exchange: of halo rows."""
        with torch.no_grad():
            made = self.model(*inputs, exchange)
        logits = made if made.dim() == 1 else made[:, 0]
        return torch.sigmoid(logits.cpu().double())


def load_scorer(
    run: Path, device: torch.device = CPU, precision: Precision | None = None
) -> EdgeScorer:
    """Loads a run's final edge model, which computes in `precision`; None: as trained."""
    stored, digest = load_trained(run, "edge", device)
    features = load_features(stored.configuration.data, stored.measured)
    model = stored.model if precision is None else _computing_in(precision, stored).to(device)
    return EdgeScorer(model.eval(), features, digest)


def _computing_in(precision: Precision, stored: StoredModel) -> nn.Module:
    """Makes a copy of a stored model that computes in `precision`."""
    rows = "bf16" if precision is Precision.BF16 else "fp32"
    settings = stored.configuration.model
    if rows != settings.precision:
        if "precision" not in type(settings).model_fields:
            raise InputError(
                f"leave out --precision {rows}: class {settings.name} sets its own precision"
            )
        settings = settings.model_copy(update={"precision": rows})
    model = build_model(stored.configuration.model_copy(update={"model": settings}))
    model.load_state_dict(stored.model.state_dict())
    return model.double() if precision is Precision.FLOAT64 else model
