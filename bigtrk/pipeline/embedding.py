"""Stage 1 applied: a trained embedding, and the radius that its validation chose.

Shapes: N hits, D dimensions.
"""

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
from bigtrk.graphs.computed_features import StoredColumns
from bigtrk.graphs.features import as_tensor, available
from bigtrk.models.protocol import no_exchange
from bigtrk.pipeline.trained import CPU, load_trained, share_name
from bigtrk.records.run_folder import read_run
from bigtrk.training.data.features import ModelFeatures, load_features
from bigtrk.training.embedding import KEPT
from bigtrk.user_code import names_code


@dataclass(frozen=True)
class Embedding:
    """The embedding that a run trained, and the features of hits that it reads.

    digest: of its weights, for records of what was made with it.
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
    """Loads the embedding that `run` ended with, on `device`.

    Raises:
        InputError: the folder has no model, or one that classifies edges.
    """
    stored, digest = load_trained(run, "hit", device)
    features = load_features(stored.configuration.data, stored.measured)
    return Embedding(stored.model, features, digest)


def radius_for(run: Path, efficiency: float) -> float:
    """Returns the radius that keeps a share `efficiency` of the target edges of the run's
    validation events.

    Raises:
        InputError: the run has no validation, or did not look for that share.
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
