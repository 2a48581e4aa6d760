"""Writes a folder of models for ACTS's GNN plugin, with a README.md that explains their use.

bigtrk's models compute with own functions, buffers and chunks, which ONNX and TorchScript do not
know. The modules here are such models in plain operations, in the forms in which ACTS calls them.
They copy a model's weights, and compute in float32 whatever its precision. TorchScript compiles
them, so all values that they compute with are attributes.

Shapes: N nodes, E edges, F columns of x (R, phi, Z and eta first, each over its scale), F and G
node and edge features (of order one), H = hidden, D dimensions of an embedding.
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile, ZipInfo

import torch
from jinja2 import Environment
from torch import Tensor, nn

from bigtrk.disk.files import unlinked, whole_folder
from bigtrk.errors import InputError, one_line
from bigtrk.graphs.features import EDGE_FEATURES, FROM_PHI, NODE_FEATURES, SCALES
from bigtrk.models.edges.passes import Activation
from bigtrk.models.edges.plain import EPS
from bigtrk.models.interaction_gnn import InteractionGNN, InteractionLayer
from bigtrk.models.mlps import EdgeMLP, Embedding
from bigtrk.models.settings import MODELS
from bigtrk.records.run import MeasuredScales
from bigtrk.training.settings import Configuration, DataSettings

# ACTS's examples for the ODD and the ITk divide by these: mm, rad, mm, 1. Theirs for phi is
# 3.141592654 in float32, which is the float32 nearest to pi.
NODE_SCALES = dict(zip(NODE_FEATURES, (1000.0, math.pi, 1000.0, 1.0), strict=True))
# Those of ACTS's features of edges, which follow from these: the slopes' in rad/mm and rad.
EDGE_SCALES = dict(
    zip(EDGE_FEATURES, (*NODE_SCALES.values(), math.pi / 1000.0, math.pi), strict=True)
)


class NodeColumns(NamedTuple):
    """The columns of x [N, F] that an exported model reads: R, phi, Z and eta, and others that its
    features need. scales: the divisor of each column, in the order of x. shifts: by feature with a
    measured mean, the number subtracted from its scaled column.
    """

    scales: dict[str, float]
    shifts: dict[str, float]


@dataclass(frozen=True)
class Stage:
    """A trained model. name: of its files. data: the settings of its features; measured: the scales
    of features that `SCALES` lacks. cut: the least score of an edge that is kept; radius: hits
    closer than this in the embedding are joined; None if it does not apply, or is not known.
    """

    name: str
    model: nn.Module
    data: DataSettings
    measured: MeasuredScales
    cut: float | None = None
    radius: float | None = None

    @cached_property
    def columns(self) -> NodeColumns:
        """Returns the columns of x from which the node features are made."""
        found = NodeColumns(dict(NODE_SCALES), {})
        for name in self.data.node_features:
            if name in found.scales or name in FROM_PHI:
                continue
            scale = SCALES.get(name) or self.measured.nodes[name]
            if isinstance(scale, tuple):
                mean, scale = scale
                found.shifts[name] = mean / scale
            found.scales[name] = scale
        return found


def check_exportable(run: str, configuration: Configuration) -> None:
    """Raises InputError if ACTS can load no form of a model, or the model reads edge features that
    ACTS does not compute. run: its name, for messages.
    """
    model, chosen = configuration.model, configuration.data.edge_features
    if not model.has_plain_form:
        exportable = [name for name, one in MODELS.items() if one.has_plain_form]
        raise InputError(
            f"{run}: ACTS cannot load its model.name={model.name}; export a run whose "
            f"model.name is one of {', '.join(exportable)}"
        )
    unknown = [name for name in chosen if name not in EDGE_SCALES]
    if model.kind == "edge" and (unknown or not chosen):
        reads = "reads no edge features, but ACTS gives some"
        if unknown:
            feature = one_line(repr(unknown[0]))
            reads = f"reads the edge feature {feature}, which ACTS does not compute"
        raise InputError(
            f"{run}: its model {reads}; train a model whose data.edge_features are some of "
            f"{', '.join(EDGE_SCALES)}"
        )


class Features(nn.Module):
    """Computes a model's features, of order one, from scaled columns: [N, F] -> [N, chosen]. For
    nodes the second column must be phi; features may be its sine and cosine.

    scales: of the columns, by name. shifts: by feature, the number subtracted from it.
    """

    column: Tensor
    factor: Tensor
    shift: Tensor

    def __init__(
        self, scales: Mapping[str, float], shifts: Mapping[str, float], chosen: Sequence[str]
    ) -> None:
        super().__init__()
        names = [*scales, *FROM_PHI]  # as `forward` joins them
        # Factors from ACTS's scale to ours; 1 where both are the same.
        own = [scales.get(name, 1.0) for name in chosen]
        factors = [one / SCALES.get(name, one) for name, one in zip(chosen, own, strict=True)]
        self.turns = any(name in FROM_PHI for name in chosen)
        self.register_buffer("column", torch.tensor([names.index(name) for name in chosen]))
        self.register_buffer("factor", torch.tensor(factors))
        self.register_buffer("shift", torch.tensor([shifts.get(name, 0.0) for name in chosen]))

    def forward(self, x: Tensor) -> Tensor:
        if self.turns:
            phi = x[:, 1:2] * math.pi
            x = torch.cat([x, torch.cos(phi), torch.sin(phi)], dim=1)
        return x.index_select(1, self.column) * self.factor - self.shift


def outwards(x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    """Directs edges [2, E] as in bigtrk's radius graphs: by distance from the origin, in float64,
    then by row; returns source and destination [E]. ACTS orders them by row alone.
    """
    r, z = x[:, 0].double(), x[:, 2].double()  # over the same scale
    distance = r * r + z * z
    one, other = edge_index[0], edge_index[1]
    of_one, of_other = distance.index_select(0, one), distance.index_select(0, other)
    turned = (of_one > of_other) | ((of_one == of_other) & (one > other))
    return torch.where(turned, other, one), torch.where(turned, one, other)


def edge_attributes(x: Tensor, source: Tensor, destination: Tensor) -> Tensor:
    """Computes ACTS's edge_attr from the scaled columns of x: [E, 6].

    dr, dphi, dz, deta, phislope = dphi / dr and rphislope = mean r x phislope; the last two are 0
    where dr is 0 (makeEdgeFeatures in ACTS's ModuleMapUtils.cuh). A turn of phi is 2 in these
    units. All are computed in float64, since a wrapped difference would keep few digits.
    """
    near = x[:, :4].double().index_select(0, source)
    far = x[:, :4].double().index_select(0, destination)
    dr, dphi, dz, deta = (far - near).unbind(1)
    dphi = torch.where(dphi > 1.0, dphi - 2.0, torch.where(dphi < -1.0, dphi + 2.0, dphi))
    # ACTS clamps where we do, PHISLOPE_LIMIT in its units.
    slope = torch.where(dr != 0.0, (dphi / dr).clamp(-100.0, 100.0), torch.zeros_like(dr))
    rphislope = 0.5 * (near[:, 0] + far[:, 0]) * slope
    return torch.stack([dr, dphi, dz, deta, slope, rphislope], dim=1).float()


def perceptron(weights: Sequence[Tensor], activations: Sequence[Activation]) -> nn.Sequential:
    """Makes an MLP. weights: the weight and bias of each linear layer, in turn."""
    steps: list[nn.Module] = []
    for weight, bias, activation in zip(weights[::2], weights[1::2], activations, strict=True):
        steps += [_linear(weight, bias), *_activated(activation, len(bias))]
    return nn.Sequential(*steps)


def _activated(activation: Activation, width: int) -> list[nn.Module]:
    if activation == "norm":
        return [nn.LayerNorm(width, eps=EPS, elementwise_affine=False), nn.ReLU()]
    return [nn.ReLU()] if activation == "relu" else []


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    # On "meta" no random weights are drawn; the given ones replace them.
    made = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    made.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return made


class EdgeUpdate(nn.Module):
    """An MLP of edges, whose input is [edge, source, destination], with `width` columns per node.

    The first product's node parts are computed once per node, as in EdgePass.
    """

    def __init__(
        self, weights: Sequence[Tensor], activations: Sequence[Activation], width: int
    ) -> None:
        super().__init__()
        weight, bias, *others = weights
        widths = [weight.shape[1] - 2 * width, width, width]
        of_edge, of_source, of_destination = weight.split(widths, dim=1)
        self.of_edge = _linear(of_edge)
        self.of_source = _linear(of_source, bias)
        self.of_destination = _linear(of_destination)
        rest = perceptron(others, activations[1:])
        self.rest = nn.Sequential(*_activated(activations[0], len(bias)), *rest)

    def forward(self, x: Tensor, e: Tensor, source: Tensor, destination: Tensor) -> Tensor:
        of_nodes = self.of_source(x).index_select(0, source)
        of_nodes = of_nodes + self.of_destination(x).index_select(0, destination)
        made: Tensor = self.rest(self.of_edge(e) + of_nodes)
        return made


def summed(values: Tensor, ends: Tensor, x: Tensor) -> Tensor:
    """Sums edge values [E, H] at the edges' end nodes, `ends` [E], which are rows of x: [N, H]."""
    zeros = values.new_zeros([x.shape[0], values.shape[1]])
    return zeros.scatter_add(0, ends.unsqueeze(1).expand_as(values), values)


class InteractionStep(nn.Module):
    """A layer of the Interaction GNN, except the last: it updates all edges, then all nodes from
    their states and the sums of their edges, incoming and outgoing.
    """

    def __init__(self, layer: InteractionLayer, width: int, in_out: bool) -> None:
        super().__init__()
        self.in_out = in_out
        self.edges = EdgeUpdate(layer.weights("edge_mlp"), layer.activations, width)
        self.nodes = perceptron(layer.weights("node_mlp"), layer.activations)

    def forward(
        self, x: Tensor, e: Tensor, source: Tensor, destination: Tensor
    ) -> tuple[Tensor, Tensor]:
        e = self.edges(x, e, source, destination)
        incoming, outgoing = summed(e, destination, x), summed(e, source, x)
        inputs = [incoming, outgoing] if self.in_out else [incoming + outgoing]
        inputs.append(x)
        return self.nodes(torch.cat(inputs, 1)), e


class PlainGNN(nn.Module):
    """The Interaction GNN in plain operations, without its pT head."""

    def __init__(self, model: InteractionGNN) -> None:
        super().__init__()
        config, nodes, edges = model.config, model.node_encoder, model.edge_encoder
        self.concatenate = config.concatenate
        self.node_encoder = perceptron(nodes.weights(), nodes.activations)
        self.edge_encoder = perceptron(edges.weights(), edges.activations)
        width = config.hidden * (2 if config.concatenate else 1)
        distinct = [layer for layer in model.layers if isinstance(layer, InteractionLayer)]
        *layers, last = distinct * config.layers if config.shared_weights else distinct
        steps = {layer: InteractionStep(layer, width, config.in_out) for layer in layers}
        self.steps = nn.ModuleList(steps[layer] for layer in layers)
        *shared, weight, bias = model.decoder.weights()
        decoder = [*shared, weight[:1], bias[:1]]  # row 1 is of the pT
        self.last = EdgeUpdate(
            last.weights("edge_mlp") + decoder,
            last.activations + model.decoder.activations,
            width,
        )

    def forward(self, x: Tensor, e: Tensor, source: Tensor, destination: Tensor) -> Tensor:
        """Returns logits [E, 1]; x [N, F], edge features e [E, G], source, destination [E]."""
        x = self.node_encoder(x)
        e = self.edge_encoder(e)
        first_x, first_e = x, e
        for step in self.steps:
            if self.concatenate:
                x, e = torch.cat([x, first_x], 1), torch.cat([e, first_e], 1)
            x, e = step(x, e, source, destination)
        if self.concatenate:
            x, e = torch.cat([x, first_x], 1), torch.cat([e, first_e], 1)
        made: Tensor = self.last(x, e, source, destination)
        return made


EDGE_ATTR = "_edge_attr"  # of the names of files whose models are given edge_attr
OUTPUT = "output"


class _Edges(nn.Module):
    def __init__(self, nodes: Features, edges: Features, network: nn.Module) -> None:
        super().__init__()
        self.nodes, self.edges, self.network = nodes, edges, network


class AttributedEdges(_Edges):
    """An edge model for graphs of ACTS's module map, which come with edge features."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Returns logits [E, 1]; x [N, F], edge_index [2, E], edge_attr [E, 6]."""
        nodes, edges = self.nodes(x), self.edges(edge_attr)
        made: Tensor = self.network(nodes, edges, edge_index[0], edge_index[1])
        return made


class BareEdges(_Edges):
    """An edge model for graphs of ACTS's metric learning, which are only pairs of hits: the model
    directs them outwards and computes their features itself.
    """

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Returns logits [E, 1]; x [N, F], edge_index [2, E]."""
        source, destination = outwards(x, edge_index)
        edges = self.edges(edge_attributes(x, source, destination))
        made: Tensor = self.network(self.nodes(x), edges, source, destination)
        return made


@dataclass(frozen=True)
class Form:
    """A model as one exported module. suffix: of its files' names. inputs: an example of each input
    tensor, by name.
    """

    suffix: str
    module: nn.Module
    inputs: Mapping[str, Tensor]


def forms_of(stage: Stage) -> list[Form]:
    """Returns the exportable forms of a trained model, for inference."""
    nodes = Features(*stage.columns, stage.data.node_features)
    x = torch.zeros(3, len(stage.columns.scales))
    if isinstance(stage.model, Embedding):
        network = stage.model.network
        embed = nn.Sequential(nodes, perceptron(network.weights(), network.activations))
        return [Form("", embed.eval(), {"x": x})]
    edges = Features(EDGE_SCALES, {}, stage.data.edge_features)
    if isinstance(stage.model, InteractionGNN):
        classify: nn.Module = PlainGNN(stage.model)
    else:
        assert isinstance(stage.model, EdgeMLP), "check_exportable refuses the others"
        network = stage.model.network
        width = len(stage.data.node_features)
        classify = EdgeUpdate(network.weights(), network.activations, width)
    bare = {"x": x, "edge_index": torch.tensor([[0, 1, 0, 2], [1, 2, 2, 0]])}
    attributed = {**bare, "edge_attr": torch.zeros(4, len(EDGE_SCALES))}
    return [
        Form("", BareEdges(nodes, edges, classify).eval(), bare),
        Form(EDGE_ATTR, AttributedEdges(nodes, edges, classify).eval(), attributed),
    ]


OPSET = 17  # the first that has LayerNormalization, which ONNX Runtime computes since 1.12


def write_torchscript(form: Form, path: Path) -> None:
    """Writes the model as TorchScript, which `torch::jit::load` reads.

    It is compiled from the code, since a trace would sum on the device of the trace. Debugging
    records, which contain paths of this machine, are dropped.
    """
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        torch.jit.script(form.module).save(path)
    with ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with ZipFile(path, "w") as archive:
        for name, content in members.items():
            if not name.endswith(".debug_pkl"):
                archive.writestr(ZipInfo(name), content)


def write_onnx(form: Form, path: Path) -> None:
    """Writes the model as ONNX of standard operators, for any number of nodes and edges.

    torch's other exporter gives the same logits, but takes 2 to 10 s for a model instead of 0.2 s.
    """
    import onnx

    # The dimensions whose size varies from call to call.
    counted = {"x": {0: "nodes"}, "edge_index": {1: "edges"}, "edge_attr": {0: "edges"}}
    output = {0: "edges" if "edge_index" in form.inputs else "nodes"}
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        torch.onnx.export(
            form.module,
            tuple(form.inputs.values()),
            path,
            input_names=list(form.inputs),
            output_names=[OUTPUT],
            dynamic_axes={**{name: counted[name] for name in form.inputs}, OUTPUT: output},
            opset_version=OPSET,
            dynamo=False,
        )
    onnx.checker.check_model(path, full_check=True)


_PLACES = {"r": "R", "phi": "Phi", "z": "Z", "eta": "Eta"}
# Names in ACTS's NodeFeature of the columns of a hit and, as in the ITk, of its two clusters.
ACTS_NAMES = _PLACES | {
    f"cluster_{name}_{i}": f"Cluster{i}{theirs}" for i in (1, 2) for name, theirs in _PLACES.items()
}
RADIUS = 1.6  # ACTS's own
README = "README.md"
TITLE = "# Models for ACTS, exported by bigtrk\n"


def readme(stages: Sequence[Stage]) -> str:
    """Returns the README's text for models exported together, with the Python that adds them."""
    text = files("bigtrk.formats.acts").joinpath("models.md").read_text("utf-8")
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    embedding = next((stage for stage in stages if isinstance(stage.model, Embedding)), None)
    # The columns that ACTS is to make for all stages, and the scale of each.
    scales = {name: scale for stage in stages for name, scale in stage.columns.scales.items()}
    return environment.from_string(text).render(
        title=TITLE,
        stages=stages,
        embedding=embedding,
        edges=[stage for stage in stages if stage is not embedding],
        radius=RADIUS if embedding is None or embedding.radius is None else embedding.radius,
        selected={
            stage.name: [list(scales).index(name) for name in stage.columns.scales]
            for stage in stages
        },
        # In the style of ACTS's examples, where pi has ten digits.
        scales={name: repr(float(f"{scale:.10g}")) for name, scale in scales.items()},
        acts=ACTS_NAMES,
        attributes=list(EDGE_SCALES),
        edge_attr=EDGE_ATTR,
        opset=OPSET,
        output=OUTPUT,
    )


_MODEL_FILE = re.compile(r"\w+\.(onnx|pt)")


def check_out(out: Path) -> None:
    """Raises InputError if onnx is missing, or `out` holds anything but an earlier export."""
    if find_spec("onnx") is None:
        raise InputError("onnx is not installed; pip install 'bigtrk[onnx]'")
    if not unlinked(out).exists():
        return
    if not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder for the models")
    names = sorted(path.name for path in out.iterdir())
    others = [name for name in names if name != README and not _MODEL_FILE.fullmatch(name)]
    ours = (out / README).is_file() and (out / README).read_bytes().startswith(TITLE.encode())
    others = others or ([] if ours else names)
    if others:
        raise InputError(f"{out}: holds {others[0]}, which no export wrote; name another folder")


def export_run(run: Path, out: Path, trained: Callable[..., Sequence[Stage]]) -> list[str]:
    """Exports the model of a run, or of each stage of a pipeline, to folder `out` in files that
    ACTS loads; returns the files' names. trained: `stages_of` (bigtrk/pipeline). Raises InputError
    if `run` has no model that ACTS can load, or `out` holds something else.
    """
    return export_stages(trained(run, check_exportable), out)


def export_stages(stages: Sequence[Stage], out: Path) -> list[str]:
    """Writes each form of each stage's model as ONNX and TorchScript, and README.md, to folder
    `out`, all or nothing; returns the files' names.
    """
    check_out(out)
    with whole_folder(out) as folder:
        for stage in stages:
            for form in forms_of(stage):
                write_onnx(form, folder / f"{stage.name}{form.suffix}.onnx")
                write_torchscript(form, folder / f"{stage.name}{form.suffix}.pt")
        (folder / README).write_text(readme(stages))
        return sorted(file.name for file in folder.iterdir())
