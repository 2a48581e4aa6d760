"""acorn's InteractionGNN2 as acorn computes and saves it, without acorn."""

import math
import sys
from collections import Counter, OrderedDict
from dataclasses import dataclass
from pathlib import Path, PosixPath
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph, whole_sector
from bigtrk.graphs.features import EDGE_FEATURES, edge_columns, with_eta
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.training.data.batch import load_features
from bigtrk.training.model_files import StoredModel
from tests.oracle.interaction_gnn import ReferenceGNN

CLUSTERS = [f"cluster_{column}_{i}" for i in (1, 2) for column in ("r", "phi", "z", "eta")]
TWELVE = ["r", "phi", "z", "eta", *CLUSTERS]
UNITS = [1000.0, math.pi, 1000.0, 1.0] * 3


def settings(**changed: Any) -> dict[str, Any]:
    """The keys of a YAML file of acorn's, and some that have nothing to do with the model."""
    content: dict[str, Any] = {
        "stage": "edge_classifier",
        "model": "InteractionGNN2",
        "node_features": TWELVE,
        "node_scales": UNITS,
        "edge_features": list(EDGE_FEATURES),
        "hidden": 16,
        "n_graph_iters": 3,
        "n_node_net_layers": 2,
        "n_edge_net_layers": 2,
        "n_node_encoder_layers": 7,
        "n_edge_decoder_layers": 2,
        "layernorm": True,
        "batchnorm": False,
        "output_batch_norm": False,
        "edge_output_transform_final_batch_norm": False,
        "hidden_activation": "ReLU",
        "output_activation": "ReLU",
        "edge_output_transform_final_activation": None,
        "concat": True,
        "in_out_diff_agg": True,
        "node_net_recurrent": False,
        "edge_net_recurrent": False,
        "checkpointing": True,
        "lr": 0.001,
    }
    return {**content, **changed}


@dataclass(frozen=True)
class AcornModel:
    """A model of acorn's with random weights, or those of `state`."""

    settings: dict[str, Any]
    reference: ReferenceGNN

    @classmethod
    def drawn(cls, seed: int, content: dict[str, Any]) -> "AcornModel":
        torch.manual_seed(seed)
        model = cls(content, _reference(content))
        with torch.no_grad():  # scores of small weights would hardly differ
            for weight in model.reference.parameters():
                weight.mul_(2)
        if content["edge_net_recurrent"]:
            for networks in (model.reference.edge_network, model.reference.node_network):
                for network in networks:
                    network.load_state_dict(networks[0].state_dict())
        return model

    @classmethod
    def of(cls, content: dict[str, Any], state: dict[str, Tensor]) -> "AcornModel":
        """The model of a checkpoint, not a recurrent one."""
        reference = _reference(content)
        last = f"node_network.{content['n_graph_iters'] - 1}."
        read = {name: tensor for name, tensor in state.items() if not name.startswith(last)}
        reference.load_state_dict(read)
        return cls(content, reference)

    def state_dict(self) -> "OrderedDict[str, Tensor]":
        """The weights by acorn's names, those of the last, unread node network too."""
        found = {name: x.float() for name, x in self.reference.state_dict().items()}
        hidden, last = self.settings["hidden"], self.settings["n_graph_iters"] - 1
        sums = 2 if self.settings["in_out_diff_agg"] else 1
        width = (sums + (2 if self.settings["concat"] else 1)) * hidden
        for k in range(self.settings["n_node_net_layers"]):
            name = f"node_network.{last}.{3 * k}"
            found[f"{name}.weight"] = torch.randn(hidden, hidden if k else width)
            found[f"{name}.bias"] = torch.randn(hidden)
        if self.settings["edge_net_recurrent"]:
            kept = {n: x for n, x in found.items() if "_network." not in n or "_network.0." in n}
            found = {name.replace("_network.0.", "_network."): x for name, x in kept.items()}
        return OrderedDict(sorted(found.items()))

    def scores(self, graph: EventGraph) -> Tensor:
        """Computes acorn's scores of the columns of a graph, in mm and rad: [E] float64."""
        columns = dict(zip(graph.node_feature_names, graph.node_features.T, strict=True))
        x, edge_features = acorn_inputs(self.settings, columns, graph.edge_index)
        with torch.no_grad():
            logits: Tensor = self.reference.double()(x, edge_features, graph.edge_index)
        return logits.sigmoid()


def _reference(content: dict[str, Any]) -> ReferenceGNN:
    config = InteractionGNNConfig(
        hidden=content["hidden"],
        layers=content["n_graph_iters"],
        mlp_layers=content["n_edge_net_layers"],
        concatenate=content["concat"],
        in_out=content["in_out_diff_agg"],
    )
    return ReferenceGNN(config, len(content["node_features"]), len(content["edge_features"]))


def acorn_inputs(
    content: dict[str, Any], columns: dict[str, Tensor], edge_index: Tensor
) -> tuple[Tensor, Tensor]:
    """Columns [N] in mm and rad, scaled as acorn's loading does, and what it computes of them for
    edges: [N, F], [E, G].
    """
    names = [name.removeprefix("hit_") for name in content["node_features"]]
    scaled = dict(columns)
    for name, scale in zip(names, content["node_scales"], strict=True):
        scaled[name] = scaled[name] / scale
    (r0, phi0, z0, eta0), (r1, phi1, z1, eta1) = (
        [scaled[name][ends] for name in ("r", "phi", "z", "eta")] for ends in edge_index
    )
    turned = (phi1 - phi0) * math.pi
    turned = torch.where(turned > math.pi, turned - 2 * math.pi, turned)
    turned = torch.where(turned < -math.pi, turned + 2 * math.pi, turned)
    dphi = turned / math.pi
    slope = (dphi / (r1 - r0)).nan_to_num(nan=0.0, posinf=100.0, neginf=-100.0).clamp(-100, 100)
    edges = {
        "dr": r1 - r0,
        "dphi": dphi,
        "dz": z1 - z0,
        "deta": eta1 - eta0,
        "phislope": slope,
        "rphislope": (r0 + r1) / 2 * slope,
    }
    chosen = [edges[name.removeprefix("edge_")] for name in content["edge_features"]]
    return torch.stack([scaled[name] for name in names], 1), torch.stack(chosen, 1)


def hits(seed: int, widest_phi: float = math.pi) -> EventGraph:
    """A graph in float64, in which no edge is as steep as acorn's clamp, with acorn's clusters."""
    rng = np.random.default_rng(seed)
    n_nodes, n_edges = 60, 240
    r, z = rng.uniform(30, 1000, n_nodes), rng.uniform(-3000, 3000, n_nodes)
    nodes = with_eta(r, rng.uniform(-widest_phi, widest_phi, n_nodes), z)
    for name in CLUSTERS:
        nodes[name] = nodes[name.split("_")[1]] + rng.normal(0, 0.3, n_nodes)
    ends = rng.integers(n_nodes, size=(2, 10 * n_edges))
    edge_index = ends[:, np.abs(r[ends[1]] - r[ends[0]]) > 20][:, :n_edges]
    edges = edge_columns(nodes, edge_index)
    return EventGraph(
        name=f"event{seed:09d}",
        node_feature_names=tuple(nodes),
        edge_feature_names=tuple(edges),
        node_features=torch.from_numpy(np.stack(list(nodes.values()), 1)),
        edge_index=torch.from_numpy(edge_index),
        edge_features=torch.from_numpy(np.stack(list(edges.values()), 1)),
        y=torch.from_numpy(rng.uniform(size=edge_index.shape[1]) < 0.4),
    )


def our_scores(stored: StoredModel, graph: EventGraph) -> Tensor:
    """Scores of a model here for a graph in float64, computed in float64: [E]."""
    sector = whole_sector(graph)
    features = load_features(stored.configuration.data, stored.measured)
    inputs = features.of_nodes(sector), features.of_edges(sector), sector.edge_index
    with torch.no_grad():
        made = stored.model.double()(*inputs, sector.n_owned, no_exchange)
    found = torch.empty(graph.n_edges, dtype=torch.float64)
    found[sector.edge_id] = (made if made.dim() == 1 else made[:, 0]).sigmoid()
    return found


def checkpoint(path: Path, content: Any, state: dict[str, Tensor] | None, **others: Any) -> Path:
    """A file as Lightning writes it, with what else is in one."""
    saved = {
        "epoch": 3,
        "global_step": 120,
        "pytorch-lightning_version": "2.0.4",
        "state_dict": state,
        "hyper_parameters": content,
        "hparams_name": "hparams",
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 4}}}},
        "optimizer_states": [{"state": {0: {"step": torch.tensor(120.0)}}, "param_groups": []}],
        "lr_schedulers": [{"milestones": Counter({5: 1}), "last_epoch": 3}],
        "callbacks": {"ModelCheckpoint{}": {"dirpath": PosixPath("runs"), "best": np.float64(0.9)}},
        **others,
    }
    torch.save({name: value for name, value in saved.items() if value is not None}, path)
    return path


def lightning_settings(monkeypatch: pytest.MonkeyPatch, content: dict[str, Any]) -> Any:
    """Settings in the class that Lightning keeps them in, which a file then names."""
    name = "pytorch_lightning.utilities.parsing"
    module = ModuleType(name)
    kind = type("AttributeDict", (dict,), {"__module__": name})
    module.AttributeDict = kind  # type: ignore[attr-defined]
    for package in ("pytorch_lightning", "pytorch_lightning.utilities"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    monkeypatch.setitem(sys.modules, name, module)
    return kind(content)
