"""The oracle of the parity tests, and what ranks found, put together to be compared with it."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from bigtrk.formats.acorn.model_files import acorn_names
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import SCALES, normalised
from bigtrk.models.settings import AttentionGNNConfig, InteractionGNNConfig, PyGConfig
from bigtrk.training.data.batch import Share, compute
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import EDGE_FEATURES, NODE_FEATURES
from tests.oracle.attention_gnn import ReferenceAttention, our_attention_name
from tests.oracle.interaction_gnn import ReferenceGNN

# An event's name, edge ids [n] and their logits [n].
Scored = tuple[str, Tensor, Tensor]


class Oracle:
    """Whole graphs in one process: the plain model (of the attention network that with dense
    matrices) in float64, autograd, plain SGD, the loss written out. Parameters have the names that
    they have in our model.

    It starts from `weights`, or else from those that a run of these settings starts from.
    """

    def __init__(
        self,
        settings: Configuration,
        graphs: Sequence[EventGraph],
        weights: dict[str, Tensor] | None = None,
    ) -> None:
        if weights is None:
            weights = build_model(settings).state_dict()
        self._pt_weight = settings.training.pt_weight
        self._model, self._names = _reference(settings)
        renamed = {name: weights[ours].double() for name, ours in self._names.items()}
        self._model.load_state_dict(renamed)
        self._graphs = graphs
        self._per_edge = settings.training.step_loss == "per_edge"

    def logits(self) -> dict[str, Tensor]:
        """Returns the logits of every edge [E], by event."""
        with torch.no_grad():
            return {graph.name: self._score(graph)[0] for graph in self._graphs}

    def loss(self) -> float:
        """Returns a step's loss: the mean over all edges, or over events of their edges' means."""
        return float(self._loss().detach())

    def pt_loss(self) -> float:
        """Returns a step's pT loss, averaged as `loss` is, over the edges whose pT is known."""
        return float(self._pt_loss().detach())

    def gradients(self) -> dict[str, Tensor]:
        """Returns the gradients of the loss with its auxiliary part, by parameter."""
        loss = self._loss() + (self._pt_weight * self._pt_loss() if self._pt_weight else 0)
        named = dict(self._model.named_parameters())
        found = torch.autograd.grad(loss, list(named.values()))
        return {self._names[name]: value for name, value in zip(named, found, strict=True)}

    def trained(self, steps: int, lr: float) -> dict[str, Tensor]:
        """Returns the weights after `steps` more."""
        for _ in range(steps):
            gradients = self.gradients()
            with torch.no_grad():
                for name, parameter in self._model.named_parameters():
                    parameter.sub_(lr * gradients[self._names[name]])
        return {self._names[name]: value for name, value in self._model.state_dict().items()}

    def _loss(self) -> Tensor:
        sums = torch.stack([self._summed_loss(graph) for graph in self._graphs])
        edges = torch.tensor([graph.n_edges for graph in self._graphs])
        return sums.sum() / edges.sum() if self._per_edge else (sums / edges).mean()

    def _summed_loss(self, graph: EventGraph) -> Tensor:
        assert graph.y is not None
        return binary_cross_entropy_with_logits(
            self._score(graph)[0], graph.y.double(), reduction="sum"
        )

    def _pt_loss(self) -> Tensor:
        summed = [self._summed_pt_loss(graph) for graph in self._graphs]
        sums, counts = torch.stack([s for s, _ in summed]), torch.tensor([n for _, n in summed])
        return sums.sum() / counts.sum() if self._per_edge else (sums / counts.clamp(min=1)).mean()

    def _summed_pt_loss(self, graph: EventGraph) -> tuple[Tensor, int]:
        known = known_log_pt(graph)
        log_pt = self._score(graph)[1][list(known)]
        expected = torch.tensor(list(known.values()), dtype=torch.float64)
        return smooth_l1_loss(log_pt, expected, reduction="sum"), len(known)

    def _score(self, graph: EventGraph) -> list[Tensor]:
        """Logits [E] and, if the model has them, log pT [E]."""
        made: Tensor = self._model(
            normalised(graph.node_features, NODE_FEATURES, SCALES, NODE_FEATURES).double(),
            normalised(graph.edge_features, EDGE_FEATURES, SCALES, EDGE_FEATURES).double(),
            graph.edge_index,
        )
        return list(made.unbind(1)) if made.dim() == 2 else [made]


def known_log_pt(graph: EventGraph) -> dict[int, float]:
    """Finds the log pT of each true edge whose particle's pT is known, by a loop over edges."""
    assert graph.y is not None
    assert graph.particle_id is not None
    assert graph.particles is not None
    ids, log_pts = graph.particles.particle_id.tolist(), graph.particles.pt.log().tolist()
    found = {}
    for edge, (is_true, node) in enumerate(zip(graph.y, graph.edge_index[1], strict=True)):
        particle = int(graph.particle_id[node])
        if is_true and particle in ids and not math.isnan(log_pts[ids.index(particle)]):
            found[edge] = log_pts[ids.index(particle)]
    return found


def _reference(settings: Configuration) -> tuple[nn.Module, dict[str, str]]:
    """The plain model in float64, and our names of its parameters."""
    config, sizes = settings.model, (len(NODE_FEATURES), len(EDGE_FEATURES))
    if isinstance(config, PyGConfig):
        # Importing PyG takes seconds, which other tests need not wait for.
        from tests.oracle.pyg import PlainModel

        network = PlainModel.of(config, *sizes).double()
        return network, {name: name for name, _ in network.named_parameters()}
    if isinstance(config, AttentionGNNConfig):
        dense = ReferenceAttention(config, *sizes).double()
        return dense, {name: our_attention_name(name) for name in dense.state_dict()}
    assert isinstance(config, InteractionGNNConfig)
    apart = config.model_copy(update={"shared_weights": False})
    plain = ReferenceGNN(apart, *sizes, settings.training.pt_weight > 0).double()
    known = acorn_names(apart)
    names = {
        name: name.replace("pt_output.", "decoder.pt_")
        if name.startswith("pt_output.")
        else known[name] or ""
        for name in plain.state_dict()
    }
    if config.shared_weights:
        for networks in (plain.edge_network, plain.node_network):
            for i in range(len(networks)):
                networks[i] = networks[0]
        names = {name: re.sub(r"layers\.\d+", "layers.0", ours) for name, ours in names.items()}
    return plain, {name: ours for name, ours in names.items() if ours}


def difference(found: Tensor, expected: Tensor) -> float:
    """Largest difference over largest value; infinite where something is not a number."""
    scale = expected.abs().max().clamp(min=1e-300)
    largest = (found.double() - expected).abs().max() / scale
    return float(largest.nan_to_num(nan=torch.inf))


def worst(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest of the differences, which are of the same names."""
    assert found.keys() == expected.keys()
    return max(difference(found[name], value) for name, value in expected.items())


def worst_of_all(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest difference over the largest value of all: where a softmax makes some gradients
    nothing but rounding.
    """
    names = sorted(expected)
    assert found.keys() == expected.keys()
    flat = (torch.cat([values[name].flatten() for name in names]) for values in (found, expected))
    return difference(*flat)


def in_dtype(share: Share, dtype: torch.dtype) -> Share:
    """`share` with features and weights in `dtype`."""
    batches = [
        replace(
            batch,
            x=batch.x.to(dtype),
            edge_features=batch.edge_features.to(dtype),
            truth=replace(batch.truth, weight=batch.truth.weight.to(dtype)),
        )
        for batch in share.batches
    ]
    return replace(share, batches=batches)


def owned_logits(model: nn.Module, shares: Iterable[Share]) -> list[Scored]:
    """The logits of the edges that this rank's sectors own. Collective."""
    with torch.no_grad():
        scored = [pair for s in shares for pair in zip(s.batches, compute(model, s), strict=True)]
    sectors = [(batch.sector, predicted.logits) for batch, predicted in scored]
    return [(s.event, s.edge_id[s.owns_edge], logits[s.owns_edge]) for s, logits in sectors]


def stitched(scored: Iterable[Scored], graphs: Iterable[EventGraph]) -> dict[str, Tensor]:
    """Joins all ranks' logits into every edge's [E] float64, by event; each edge comes once."""
    whole = {g.name: torch.full((g.n_edges,), torch.nan, dtype=torch.float64) for g in graphs}
    for name, edge_id, logits in scored:
        # A rank without an event has a sector without edges.
        if len(edge_id):
            assert whole[name][edge_id].isnan().all(), "an edge owned twice"
            whole[name][edge_id] = logits.double()
    assert not any(value.isnan().any() for value in whole.values()), "an edge nobody owns"
    return whole


def whole(tensor: Tensor) -> Tensor:
    """A DTensor gathered over this rank's block; any other tensor itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_gradients(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter's reduced gradient, gathered where it is sharded. Collective."""
    whole_gradient = _of_deepspeed if hasattr(model, "zero_optimization_stage") else _of_torch
    return {
        name.removeprefix("module."): whole_gradient(parameter).detach().clone()
        for name, parameter in model.named_parameters()
    }


def _of_deepspeed(parameter: nn.Parameter) -> Tensor:
    from deepspeed.utils import safe_get_full_grad

    found: Tensor = safe_get_full_grad(parameter)
    return found


def _of_torch(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None, "no gradient"
    return whole(parameter.grad)
