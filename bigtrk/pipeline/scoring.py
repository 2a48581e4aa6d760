"""Stages 3 and 4 applied: a trained edge model, and the cut that its validation chose.

Shapes: N hits, E edges.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import SCALES, normalised
from bigtrk.graphs.sector import whole_sector
from bigtrk.models.protocol import no_exchange
from bigtrk.pipeline.trained import load_trained, share_name
from bigtrk.records.run_folder import read_run
from bigtrk.tracks.edge_metrics import KEPT


@dataclass(frozen=True)
class EdgeScorer:
    """The edge model that a run trained, and the features that it reads.

    digest: of its weights, for records of what was made with it.
    """

    model: nn.Module
    node_features: tuple[str, ...]
    edge_features: tuple[str, ...]
    digest: str

    def __call__(self, graph: EventGraph) -> Tensor:
        """Scores the edges of a whole graph, with truth or without: [E] float64 in [0, 1].

        Raises:
            InputError: the graph lacks a feature.
        """
        sector = whole_sector(graph)
        x = normalised(sector.node_features, sector.node_feature_names, SCALES, self.node_features)
        edges = normalised(
            sector.edge_features, sector.edge_feature_names, SCALES, self.edge_features
        )
        with torch.no_grad():
            made = self.model(x, edges, sector.edge_index, sector.n_nodes, no_exchange)
        logits = made if made.dim() == 1 else made[:, 0]
        scores = torch.empty(graph.n_edges, dtype=torch.float64)
        scores[sector.edge_id] = torch.sigmoid(logits.double())
        return scores


def load_scorer(run: Path) -> EdgeScorer:
    """Loads the edge model that `run` ended with.

    Raises:
        InputError: the folder has no model, or one that embeds hits.
    """
    stored, digest = load_trained(run, "edge")
    data = stored.configuration.data
    return EdgeScorer(stored.model, tuple(data.node_features), tuple(data.edge_features), digest)


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
