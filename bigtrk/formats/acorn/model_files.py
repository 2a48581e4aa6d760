"""Imports acorn's Interaction GNNs as runs, and exports bigtrk's own to acorn.

acorn's models are checkpoints of its InteractionGNN2, as Lightning writes them: settings and
weights. acorn and bigtrk divide each column by a scale before a model reads it, but by different
ones. If a feature's values are not known beforehand, bigtrk also subtracts a mean. So the first
layer, W x + b, is adapted to the columns of the other program, and a model's results stay the same.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from torch import Tensor

from bigtrk.config import parse
from bigtrk.disk.files import atomic_path, disk_errors, new_folder
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError, one_line
from bigtrk.formats.torch_files import LIGHTNING, NUMPY, ForeignObject, TorchReader
from bigtrk.graphs.features import EDGE_FEATURES, NODE_FEATURES, SCALES, Scale
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.options import Layers, Linears, Width
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.records.run import MeasuredScales, RunRecord
from bigtrk.training.model_files import StoredModel, describe, load_model
from bigtrk.training.run_folder import create_run, record_end, save_model
from bigtrk.training.settings import Configuration, DataSettings

# All that acorn reads of a node, in its order: of the hit and of its two clusters.
ACORN_NODE_FEATURES = (
    *NODE_FEATURES,
    *(f"cluster_{name}_{i}" for i in (1, 2) for name in NODE_FEATURES),
)
# The field's usual units: m and half turns; eta has none.
ACORN_SCALES = (1000.0, math.pi, 1000.0, 1.0) * 3
_IN_ALL_MODELS: dict[str, Any] = {
    "layernorm": True,
    "batchnorm": False,
    "output_batch_norm": False,
    "edge_output_transform_final_batch_norm": False,
    "output_layer_norm": False,
    "edge_output_transform_final_layer_norm": False,
    "hidden_activation": "ReLU",
    "output_activation": "ReLU",
    "edge_output_transform_final_activation": None,
}
# Far beyond any unit that makes columns of order one.
Factor = Annotated[float, Field(ge=1e-9, le=1e9)]


def _without(prefix: str) -> Any:
    """Returns a validator that removes acorn's `variable_with_prefix` prefix from names."""

    def plain(names: Any) -> Any:
        if not isinstance(names, list):
            return names
        return [name.removeprefix(prefix) if isinstance(name, str) else name for name in names]

    return BeforeValidator(plain)


class HyperParameters(BaseModel):
    """The settings that decide what an InteractionGNN2 computes; acorn has others, for training.

    node_scales: the divisor of each of node_features. acorn requires the settings that have no
    default here.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    node_features: Annotated[list[str], _without("hit_"), Field(min_length=1)]
    node_scales: list[Factor]
    edge_features: Annotated[list[str], _without("edge_")] = []
    hidden: Width
    n_graph_iters: Layers
    n_node_net_layers: Linears
    n_edge_net_layers: Linears
    n_edge_decoder_layers: Linears
    layernorm: bool
    batchnorm: bool = False
    output_batch_norm: bool = False
    edge_output_transform_final_batch_norm: bool = False
    output_layer_norm: bool = False
    edge_output_transform_final_layer_norm: bool = False
    hidden_activation: str
    output_activation: str | None
    edge_output_transform_final_activation: str | None
    concat: bool
    in_out_diff_agg: bool
    node_net_recurrent: bool
    edge_net_recurrent: bool
    aggr: str | None = "sum"

    @model_validator(mode="after")
    def _is_ours(self) -> Self:
        """Raises ValueError if bigtrk's Interaction GNN cannot compute what the settings say."""
        if problem := next(self._problems(), None):
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        if self.batchnorm:
            yield (
                "batchnorm=True, as in CTD_2023's models: BatchNorm's mean over all edges is not "
                "that of a sector, so the Interaction GNN has LayerNorm alone"
            )
        for key, value in _IN_ALL_MODELS.items():
            if (found := getattr(self, key)) != value:
                yield f"{key}={found}: the Interaction GNN is that of {key}={value} alone"
        if self.aggr != "sum":
            yield f"aggr={self.aggr}: acorn then averages messages, but bigtrk's model sums them"
        layers = (self.n_node_net_layers, self.n_edge_net_layers, self.n_edge_decoder_layers)
        if len(set(layers)) > 1:
            yield (
                f"n_node_net_layers, n_edge_net_layers and n_edge_decoder_layers are "
                f"{', '.join(map(str, layers))}: all MLPs of the Interaction GNN have as many"
            )
        if self.node_net_recurrent != self.edge_net_recurrent:
            yield (
                f"node_net_recurrent={self.node_net_recurrent} and "
                f"edge_net_recurrent={self.edge_net_recurrent}: the layers of "
                f"bigtrk's model share the weights of both networks, or of neither"
            )
        known = {"node_features": ACORN_NODE_FEATURES, "edge_features": EDGE_FEATURES}
        for key, features in known.items():
            names = getattr(self, key)
            for name in [name for name in names if name not in features]:
                yield f"{key}: {name!r} is none of {', '.join(features)}"
            if len(set(names)) < len(names):
                yield f"{key}: one is there twice"
        if not self.edge_features:
            yield "edge_features: there are none; the Interaction GNN encodes some"
        if len(self.node_scales) != len(self.node_features):
            yield f"node_scales: {len(self.node_scales)} of {len(self.node_features)} node_features"
        if any(name not in NODE_FEATURES for name in self.node_features):
            if tuple(self.node_features) != ACORN_NODE_FEATURES:
                yield (
                    f"node_features: those of clusters must be {', '.join(ACORN_NODE_FEATURES)}, "
                    f"in this order"
                )
            if self.node_scales != self.node_scales[: len(NODE_FEATURES)] * 3:
                yield (
                    "node_scales: acorn copies a hit's columns over its clusters' in strip end "
                    "caps, so these need the same scales"
                )

    def scales(self) -> tuple[dict[str, float], dict[str, float]]:
        """Returns the divisors of node features and of edge features, by name, in the model's
        order; 1 for an unscaled column. acorn computes edge features from scaled nodes.
        """
        nodes = dict(zip(self.node_features, self.node_scales, strict=True))
        r, phi, z, eta = (nodes.get(name, 1.0) for name in NODE_FEATURES)
        edges = dict(zip(EDGE_FEATURES, (r, phi, z, eta, phi / r, phi), strict=True))
        return nodes, {name: edges[name] for name in self.edge_features}

    def content(self) -> dict[str, Any]:
        """Returns the settings for a checkpoint; features have the prefixes of acorn's newer
        graphs.
        """
        return {
            **self.model_dump(),
            "model": "InteractionGNN2",
            "variable_with_prefix": True,
            "node_features": [f"hit_{name}" for name in self.node_features],
            "edge_features": [f"edge_{name}" for name in self.edge_features],
            "checkpointing": True,
        }

    def model_settings(self) -> InteractionGNNConfig:
        """Returns bigtrk's settings of the same model."""
        return InteractionGNNConfig(
            hidden=self.hidden,
            layers=self.n_graph_iters,
            mlp_layers=self.n_edge_net_layers,
            shared_weights=self.edge_net_recurrent,
            concatenate=self.concat,
            in_out=self.in_out_diff_agg,
        )


def of_model(config: InteractionGNNConfig, edge_features: list[str]) -> HyperParameters:
    """Returns acorn's settings of a bigtrk model that reads ACORN_NODE_FEATURES in ACORN_SCALES."""
    return HyperParameters(
        node_features=list(ACORN_NODE_FEATURES),
        node_scales=list(ACORN_SCALES),
        edge_features=edge_features,
        hidden=config.hidden,
        n_graph_iters=config.layers,
        n_node_net_layers=config.mlp_layers,
        n_edge_net_layers=config.mlp_layers,
        n_edge_decoder_layers=config.mlp_layers,
        concat=config.concatenate,
        in_out_diff_agg=config.in_out,
        node_net_recurrent=config.shared_weights,
        edge_net_recurrent=config.shared_weights,
        **_IN_ALL_MODELS,
    )


_REMEDY = "name a checkpoint (.ckpt) of an acorn training"
_READER = TorchReader(
    # Lightning writes paths, schedules' counters and numpy's numbers besides weights and settings.
    held=(
        *NUMPY,
        *LIGHTNING,
        "__builtin__.set",
        "argparse.Namespace",
        "collections.Counter",
        "collections.defaultdict",
        "pathlib.",
    ),
    without="save its state_dict and hyper_parameters alone",
    again=_REMEDY,
)
# A Lightning of this version, and each later one, reads what is written here as it is.
_LIGHTNING = "2.2.0"


def read_checkpoint(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Reads a checkpoint's model settings, named as in acorn's YAML, and weights by name, without
    running code in the file. Raises InputError if it is missing, damaged, no checkpoint of
    Lightning, contains code, or a weight is not finite.
    """
    content = _READER.read(file)
    settings, weights = (_part(file, content, key) for key in ("hyper_parameters", "state_dict"))
    for name, tensor in weights.items():
        what = f"{file}: {one_line(name)} in its state_dict"
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise InputError(f"{what} is not a tensor of weights; {_REMEDY}")
        if not tensor.isfinite().all():
            raise InputError(f"{what} is not finite; name an earlier checkpoint of the training")
    return settings, weights


def _part(file: Path, content: Any, key: str) -> dict[str, Any]:
    part = content.get(key) if isinstance(content, dict) else None
    part = part.items if isinstance(part, ForeignObject) else part  # Lightning's AttributeDict
    if not isinstance(part, dict) or not all(isinstance(name, str) for name in part):
        raise InputError(f"{file}: has no {key}; {_REMEDY}")
    return _READER.made(file, part)


def write_checkpoint(file: Path, settings: HyperParameters, weights: dict[str, Tensor]) -> None:
    """Writes a checkpoint that acorn loads the model from, atomically. It holds no optimizer state,
    so acorn cannot continue a training from it.
    """
    content = {
        "epoch": 0,
        "global_step": 0,
        "pytorch-lightning_version": _LIGHTNING,
        "state_dict": weights,
        # The name of the argument by which acorn's models take their settings.
        "hparams_name": "hparams",
        "hyper_parameters": settings.content(),
    }
    with atomic_path(file) as temporary:
        torch.save(content, temporary)


_ONLY = "name another checkpoint; docs/acorn.md lists the models and settings that bigtrk can read"


def load_acorn_weights(model: InteractionGNN, state: Mapping[str, Tensor]) -> None:
    """Copies acorn's parameters, named as in its `state_dict`, into `model`.

    The last layer's node network is ignored, since nothing reads its result. A pT head, which acorn
    does not have, keeps its weights.
    """
    names, own = acorn_names(model.config), model.state_dict()
    for name in state:
        if name not in names:
            raise InputError(
                f"its state_dict has {one_line(name)}, which a model of its hyper_parameters lacks"
            )
    read = {name: ours for name, ours in names.items() if ours is not None}
    for name, ours in read.items():
        if name not in state:
            raise InputError(f"its state_dict lacks {name}")
        if state[name].shape != own[ours].shape:
            raise InputError(
                f"{name} in its state_dict has shape {list(state[name].shape)}, but its "
                f"hyper_parameters give {list(own[ours].shape)}"
            )
        own[ours].copy_(state[name])


def acorn_names(config: InteractionGNNConfig) -> dict[str, str | None]:
    """Maps acorn's parameter names to bigtrk's; to None in the last layer's node network. acorn's
    modules are Sequentials of linear, LayerNorm, activation: every third has parameters.
    """
    networks: dict[str, str | None] = {
        "node_encoder": "node_encoder.mlp",
        "edge_encoder": "edge_encoder.mlp",
    }
    for kind in ("edge", "node"):
        for i in range(1 if config.shared_weights else config.layers):
            place = "" if config.shared_weights else f".{i}"
            unread = kind == "node" and i + 1 == config.layers
            networks[f"{kind}_network{place}"] = None if unread else f"layers.{i}.{kind}_mlp"
    networks["edge_decoder"] = "decoder.mlp"
    linears = {
        f"{network}.{3 * k}": None if ours is None else f"{ours}_{k}"
        for network, ours in networks.items()
        for k in range(config.mlp_layers)
    }
    linears["edge_output_transform.0"] = "decoder.transform"
    linears["edge_output_transform.3"] = "decoder.output"
    return {
        f"{linear}.{kind}": None if ours is None else f"{ours}_{kind}"
        for linear, ours in linears.items()
        for kind in ("weight", "bias")
    }


def acorn_weights(state: Mapping[str, Tensor], config: InteractionGNNConfig) -> dict[str, Tensor]:
    """Renames bigtrk's weights `state` as acorn does. The last layer's node network, which bigtrk
    does not have and nothing reads, is filled with zeros; a pT head is left out.
    """
    parts = (2 if config.in_out else 1) + (2 if config.concatenate else 1)
    made = {}
    for name, ours in acorn_names(config).items():
        width = config.hidden * (parts if name.endswith(".0.weight") else 1)
        shape = [config.hidden] if name.endswith("bias") else [config.hidden, width]
        made[name] = torch.zeros(shape) if ours is None else state[ours]
    return made


def import_model(file: Path, out: Path) -> StoredModel:
    """Makes a run from acorn's checkpoint `file` in a new folder `out`; returns its model. Raises
    InputError if the checkpoint cannot be read, bigtrk has no such model, `out` holds something
    already, or the disk refuses; then nothing is written.
    """
    stored = read_model(file)
    configuration = stored.configuration
    record = RunRecord(
        world_size=1,
        engine="none",
        engine_detail=f"imported from acorn's {file.name}"[:1000],
        parameters=sum(parameter.numel() for parameter in stored.model.parameters()),
        config=configuration.model_dump(mode="json"),
        measured=stored.measured,
    )
    with new_folder(out) as folder, FolderLock() as lock:
        create_run(lock, folder, record)
        save_model(folder, stored.model.state_dict(), describe(configuration, [], stored.measured))
        record_end(folder, "imported")
    return stored


def read_model(file: Path) -> StoredModel:
    """Reads the model in acorn's checkpoint `file`. Given bigtrk's features, it computes what
    acorn's model computes from acorn's features. InputError as in `import_model`.
    """
    known, weights = read_checkpoint(file)
    settings = parse(HyperParameters, known, f"{file}: hyper_parameters", remedy=_ONLY)
    data = DataSettings(node_features=settings.node_features, edge_features=settings.edge_features)
    configuration = Configuration(data=data, model=settings.model_settings())
    # A column without a scale in bigtrk keeps acorn's, and need not be measured.
    scales = settings.scales()[0]
    measured = MeasuredScales(nodes={k: (0.0, v) for k, v in scales.items() if k not in SCALES})
    return StoredModel(_model(file, settings, weights), configuration, frozenset(), measured)


def _model(file: Path, settings: HyperParameters, weights: Mapping[str, Tensor]) -> InteractionGNN:
    n_features = len(settings.node_features), len(settings.edge_features)
    # Shapes are compared before memory is taken for a model as large as the settings say.
    for device in ("meta", "cpu"):
        with torch.device(device):
            model = InteractionGNN(settings.model_settings(), *n_features)
        try:
            load_acorn_weights(model, weights)
        except InputError as error:
            raise InputError(f"{file}: {error}; {_ONLY}") from None
    encoders = (model.node_encoder, model.edge_encoder)
    with torch.no_grad():
        for encoder, scales in zip(encoders, settings.scales(), strict=True):
            weight = encoder.get_parameter("mlp_0_weight")
            ratio = [SCALES.get(name, scale) / scale for name, scale in scales.items()]
            weight.copy_(weight.double() * torch.tensor(ratio, dtype=torch.float64))
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise InputError(f"{file}: {name} is too large for float32; name another checkpoint")
    return model


def export_model(run: Path, out: Path) -> list[str]:
    """Writes the final model of `run` to `out`, as a checkpoint of acorn's InteractionGNN2; returns
    a sentence that says what was written. A pT head, which acorn lacks, is left out. Raises
    InputError if the run has no model, or one that acorn cannot hold, `out` exists, or the disk
    refuses.
    """
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: exists already; name another file")
    settings, weights = _as_acorns(run, load_model(run))
    with disk_errors():
        write_checkpoint(out, settings, weights)
    return ["a checkpoint for acorn"]


def _as_acorns(run: Path, stored: StoredModel) -> tuple[HyperParameters, dict[str, Tensor]]:
    model, data = stored.model, stored.configuration.data
    if not isinstance(model, InteractionGNN):
        raise _refusal(run, f"acorn lacks model.name={stored.configuration.model.name}")
    if tuple(data.node_features) != ACORN_NODE_FEATURES:
        raise _refusal(
            run,
            f"its model reads the node features {', '.join(data.node_features)}, but acorn's "
            f"models read {', '.join(ACORN_NODE_FEATURES)}, in this order",
        )
    read = set(data.edge_features)
    if not read or not read <= set(EDGE_FEATURES) or len(read) < len(data.edge_features):
        raise _refusal(
            run,
            f"its model reads {', '.join(data.edge_features) or 'no features'} of edges, but "
            f"acorn's models read one or more of {', '.join(EDGE_FEATURES)}, each once",
        )
    settings = of_model(model.config, data.edge_features)
    node_scales, of_edges = settings.scales()
    weights = model.state_dict()
    known: dict[str, Scale] = {**stored.measured.nodes, **SCALES}
    for kind, acorns in (("node", node_scales), ("edge", of_edges)):
        weight, bias = f"{kind}_encoder.mlp_0_weight", f"{kind}_encoder.mlp_0_bias"
        scales = [known[name] for name in acorns]
        pairs = [scale if isinstance(scale, tuple) else (0.0, scale) for scale in scales]
        means, deviations = torch.tensor(pairs, dtype=torch.float64).unbind(1)
        exact = weights[weight].double()
        shifted = weights[bias].double() - exact @ (means / deviations)
        ratio = torch.tensor(list(acorns.values()), dtype=torch.float64) / deviations
        weights[weight], weights[bias] = (exact * ratio).float(), shifted.float()
    return settings, acorn_weights(weights, model.config)


def _refusal(run: Path, why: str) -> InputError:
    return InputError(
        f"{run}: {why}; export scores instead: 'bigtrk export acorn GRAPHS OUT --run {run}'"
    )
