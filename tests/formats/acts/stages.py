"""Models with random weights, and graphs of hits that trip their exported forms."""

from typing import Any

import numpy as np
import torch

from bigtrk.formats.acts.modules import Stage
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import EDGE_FEATURES, Ints, as_tensor, edge_columns, with_eta
from bigtrk.records.run import MeasuredScales
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration

SMALL = {"hidden": 16, "layers": 3}
FEW = ["z", "r", "sin_phi", "cluster_u", "cos_phi", "my_column"]  # in no order, others among them
# Every option of the Interaction GNN, of the edge MLP and of the embedding; and features.
MODELS: dict[str, dict[str, Any]] = {
    "interaction": {"model": SMALL},
    "shared weights": {"model": {**SMALL, "shared_weights": True}},
    "one sum, not concatenated": {"model": {**SMALL, "concatenate": False, "in_out": False}},
    "one layer": {"model": {"hidden": 16, "layers": 1}},
    "single linears": {"model": {"hidden": 16, "layers": 2, "mlp_layers": 1}},
    "a head for pT, bf16, few features": {
        "model": {**SMALL, "precision": "bf16", "recompute": "none"},
        "training": {"pt_weight": 0.3},
        "data": {"node_features": FEW, "edge_features": ["rphislope", "dz", "dphi"]},
    },
    "mlp": {
        "model": {"name": "mlp", "hidden": 16, "precision": "bf16"},
        "data": {"node_features": FEW, "edge_features": ["phislope", "dr"]},
    },
    "embedding": {
        "model": {"name": "embedding", "hidden": 16, "mlp_layers": 1},
        "data": {"node_features": FEW},
    },
}
MEASURED = {"my_column": (300.0, 20.0)}


def stage(settings: dict[str, Any], name: str = "model") -> Stage:
    """A model with random weights, of which the last are large: logits are of order one."""
    configuration = Configuration.model_validate(settings)
    model = build_model(configuration).eval()
    with torch.no_grad():
        for parameter, values in model.named_parameters():
            if parameter.endswith("output_weight"):
                values.mul_(10)
    measured = {key: MEASURED[key] for key in MEASURED if key in configuration.data.node_features}
    return Stage(name, model, configuration.data, MeasuredScales(nodes=measured), cut=0.3)


def hits_and_edges(n_nodes: int, n_edges: int, seed: int = 0) -> EventGraph:
    """Hits in a cylinder with random edges, also from outer to inner hits: among them self loops,
    repeated ones, hits at one radius, at one place, and at both ends of the turn in phi.
    """
    rng = np.random.default_rng(seed)
    r, phi = rng.uniform(30, 1000, n_nodes), rng.uniform(-np.pi, np.pi, n_nodes)
    z = rng.normal(0, 600, n_nodes)
    r[1::10], z[2::20], r[2::20] = r[0:-1:10], z[0:-2:20], r[0:-2:20]
    phi[3::10] = np.copysign(np.pi - 1e-3, phi[3::10])
    columns = {
        **with_eta(r, phi, z),
        "cluster_u": rng.integers(1, 20, n_nodes).astype(np.float64),
        "my_column": rng.normal(300, 20, n_nodes),
    }
    edges = rng.integers(0, max(n_nodes, 1), (2, n_edges))
    edges = _near_ones(edges, n_nodes)
    # As stored graphs are: float32, from which features of edges are computed.
    columns = {name: value.astype(np.float32).astype(np.float64) for name, value in columns.items()}
    return EventGraph(
        name="event000000001",
        node_feature_names=tuple(columns),
        node_features=as_tensor(columns),
        edge_feature_names=EDGE_FEATURES,
        edge_features=as_tensor(edge_columns(columns, edges)),
        edge_index=torch.from_numpy(edges),
    )


def _near_ones(edges: Ints, n_nodes: int) -> Ints:
    """Replaces some of many random edges by those that are special."""
    n_edges = edges.shape[1]
    if n_edges < 100 or n_nodes < 50:
        return edges
    tenth = n_edges // 10
    some = 20 * (np.arange(tenth) % (n_nodes // 20 - 1))
    edges[:, :tenth] = edges[:, tenth : 2 * tenth]
    edges[:, 2 * tenth : 3 * tenth] = some + np.array([[0], [1]])  # one radius
    edges[:, 3 * tenth : 4 * tenth] = some + np.array([[2], [0]])  # one radius and z
    edges[:, 4 * tenth : 5 * tenth] = some + np.array([[3], [13]])  # near the turn
    edges[1, 5 * tenth : 5 * tenth + 10] = edges[0, 5 * tenth : 5 * tenth + 10]
    return edges
