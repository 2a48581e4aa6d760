"""An Interaction GNN of acorn's brought in as a run, and one of ours handed over to it."""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from bigtrk.config import parse
from bigtrk.disk.files import disk_errors, new_folder
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError, one_line
from bigtrk.formats.acorn.checkpoint import (
    ACORN_NODE_FEATURES,
    AcornCheckpoint,
    HyperParameters,
    of_model,
    our_scales,
    read_as_acorns,
    read_as_ours,
    read_checkpoint,
    write_checkpoint,
)
from bigtrk.graphs.features import EDGE_FEATURES, SCALES, Scale
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.records.run import MeasuredScales, RunRecord
from bigtrk.training.model_files import StoredModel, describe, load_model
from bigtrk.training.run_folder import create_run, record_end, save_model
from bigtrk.training.settings import Configuration, DataSettings

# acorn's modules are Sequentials of linear, LayerNorm, activation: every third has parameters.
STRIDE = 3
_TRANSFORM = "edge_output_transform"
PT_HEAD = "decoder.pt_"
# Names come with files from anywhere; no model has layers of more digits.
NAME = re.compile(r"(\w+?)\.(?:(\d{1,3})\.)?(\d{1,3})\.(weight|bias)", re.ASCII)


def load_acorn_weights(model: InteractionGNN, state: Mapping[str, Tensor]) -> None:
    """Copies acorn's parameters, by their names in its `state_dict`, into `model`.

    The last layer's node network is ignored: nothing reads its result. A pT head, which acorn does
    not have, keeps its weights.

    Raises:
        InputError: a parameter is missing, unknown or of another shape.
    """
    renamed: dict[str, Tensor] = {}
    for name, tensor in state.items():
        ours = our_name(name, model.config)
        if ours in renamed:
            raise InputError(f"acorn weights: {name} is one too many; compare model.mlp_layers")
        if ours is not None:
            renamed[ours] = tensor
    own = {name: w for name, w in model.state_dict().items() if not name.startswith(PT_HEAD)}
    for name, tensor in own.items():
        if name not in renamed:
            raise InputError(f"acorn weights: nothing for {name}; compare the model's settings")
        if renamed[name].shape != tensor.shape:
            raise InputError(
                f"acorn weights: {name} has shape {list(renamed[name].shape)}, the model "
                f"{list(tensor.shape)}; compare model.hidden, model.concatenate, model.in_out and "
                f"the features"
            )
    if unknown := sorted(renamed.keys() - own.keys()):
        raise InputError(
            f"acorn weights: the model has no {unknown[0]}; compare model.layers, "
            f"model.mlp_layers and model.shared_weights"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(renamed[name])


def our_name(name: str, config: InteractionGNNConfig) -> str | None:
    """Returns our name of acorn's parameter; None for one that is not needed.

    Raises:
        InputError: acorn's model has no such parameter, or one of other settings.
    """
    match = NAME.fullmatch(name)
    if match is None or int(match[3]) % STRIDE:
        raise _unknown(name)
    network, layer, k, kind = match[1], int(match[2] or 0), int(match[3]) // STRIDE, match[4]
    if (match[2] is None) == (network.endswith("_network") and not config.shared_weights):
        raise InputError(
            f"acorn weights: {one_line(name)} does not fit "
            f"model.shared_weights={config.shared_weights}"
        )
    if network == "node_network" and layer + 1 == config.layers:
        return None
    ours = {
        "node_encoder": f"node_encoder.mlp_{k}",
        "edge_encoder": f"edge_encoder.mlp_{k}",
        "edge_network": f"layers.{layer}.edge_mlp_{k}",
        "node_network": f"layers.{layer}.node_mlp_{k}",
        "edge_decoder": f"decoder.mlp_{k}",
        _TRANSFORM: ("decoder.transform", "decoder.output")[min(k, 1)],
    }.get(network)
    if ours is None:
        raise _unknown(name)
    return f"{ours}_{kind}"


def _unknown(name: str) -> InputError:
    return InputError(f"acorn weights: {one_line(name)} is no parameter of an InteractionGNN2")


def acorn_weights(state: Mapping[str, Tensor], config: InteractionGNNConfig) -> dict[str, Tensor]:
    """Gives the weights of our model, `state` by name, acorn's names.

    The last layer's node network, which we do not have and nothing reads, is zeros; a pT head is
    left out.
    """
    made: dict[str, Tensor] = {}
    for name in _acorn_names(config):
        ours = our_name(name, config)
        made[name] = torch.zeros(_unread_shape(name, config)) if ours is None else state[ours]
    return made


def _acorn_names(config: InteractionGNNConfig) -> list[str]:
    """Lists all parameters of acorn's model."""
    layers = [""] if config.shared_weights else [f".{i}" for i in range(config.layers)]
    networks = [f"{kind}_network{i}" for kind in ("edge", "node") for i in layers]
    equal = ["node_encoder", "edge_encoder", *networks, "edge_decoder"]
    perceptrons = [*((network, config.mlp_layers) for network in equal), (_TRANSFORM, 2)]
    return [
        f"{network}.{STRIDE * k}.{kind}"
        for network, n_layers in perceptrons
        for k in range(n_layers)
        for kind in ("weight", "bias")
    ]


def _unread_shape(name: str, config: InteractionGNNConfig) -> list[int]:
    """Returns the shape of a parameter of the last layer's node network."""
    if name.endswith("bias"):
        return [config.hidden]
    parts = (2 if config.in_out else 1) + (2 if config.concatenate else 1)
    return [config.hidden, config.hidden * (parts if name.endswith(".0.weight") else 1)]


def import_model(file: Path, out: Path) -> StoredModel:
    """Makes a run of acorn's checkpoint `file`, in a new folder `out`; returns its model.

    Raises:
        InputError: the checkpoint cannot be read or is of a model that the Interaction GNN here is
            not, `out` holds something already, or the disk refuses; then nothing is written.
    """
    stored = read_model(file)
    configuration = stored.configuration
    parameters = sum(parameter.numel() for parameter in stored.model.parameters())
    record = RunRecord(
        world_size=1,
        engine="none",
        engine_detail=f"imported from acorn's {file.name}"[:1000],
        parameters=parameters,
        config=configuration.model_dump(mode="json"),
        measured=stored.measured,
    )
    with new_folder(out) as folder, FolderLock() as lock:
        create_run(lock, folder, record)
        save_model(folder, stored.model.state_dict(), describe(configuration, [], stored.measured))
        record_end(folder, "imported")
    return stored


def read_model(file: Path) -> StoredModel:
    """Reads the model of acorn's checkpoint `file`, which gives for our features what acorn gives
    for its own.

    Raises:
        InputError: as import_model.
    """
    checkpoint = read_checkpoint(file)
    settings = _settings(file, checkpoint)
    data = DataSettings(node_features=settings.node_features, edge_features=settings.edge_features)
    configuration = Configuration(data=data, model=settings.model_settings())
    measured = MeasuredScales(nodes=our_scales(settings.scales()[0]))
    return StoredModel(_model(file, checkpoint, settings), configuration, frozenset(), measured)


def _settings(file: Path, checkpoint: AcornCheckpoint) -> HyperParameters:
    content = dict(checkpoint.hyper_parameters)
    try:
        return parse(HyperParameters, content, f"{file}: hyper_parameters")
    except InputError as error:
        raise InputError(f"{error}; only an InteractionGNN2 like this can be imported") from None


def _model(file: Path, checkpoint: AcornCheckpoint, settings: HyperParameters) -> InteractionGNN:
    n_features = len(settings.node_features), len(settings.edge_features)
    # Shapes are compared before memory is taken for a model as large as the settings say.
    for device in ("meta", "cpu"):
        with torch.device(device):
            model = InteractionGNN(settings.model_settings(), *n_features)
        try:
            load_acorn_weights(model, checkpoint.weights)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
    encoders = (model.node_encoder, model.edge_encoder)
    with torch.no_grad():
        for encoder, scales in zip(encoders, settings.scales(), strict=True):
            weight = encoder.get_parameter("mlp_0_weight")
            weight.copy_(read_as_ours(weight, scales))
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise InputError(f"{file}: {name} is beyond what float32 holds; look at its weights")
    return model


def export_model(run: Path, out: Path) -> list[str]:
    """Writes the model that `run` ended with to `out`, a checkpoint of acorn's InteractionGNN2;
    returns what it is, in words. A head for pT, which acorn has not, is left out.

    Raises:
        InputError: the run has no model, or one that acorn cannot hold; `out` is there already, or
            the disk refuses.
    """
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: is there already; name a file that is not")
    checkpoint = _as_acorns(run, load_model(run))
    with disk_errors():
        write_checkpoint(out, checkpoint)
    return ["a checkpoint for acorn"]


def _as_acorns(run: Path, stored: StoredModel) -> AcornCheckpoint:
    model, data = stored.model, stored.configuration.data
    if not isinstance(model, InteractionGNN):
        raise _refusal(run, f"acorn has no model like {stored.configuration.model.name}")
    if tuple(data.node_features) != ACORN_NODE_FEATURES:
        raise _refusal(
            run,
            f"reads {', '.join(data.node_features)} of nodes, where acorn's models read "
            f"{', '.join(ACORN_NODE_FEATURES)}, in this order",
        )
    read = set(data.edge_features)
    if not read or not read <= set(EDGE_FEATURES) or len(read) < len(data.edge_features):
        raise _refusal(
            run,
            f"reads {', '.join(data.edge_features) or 'nothing'} of edges, where acorn's models "
            f"read some of {', '.join(EDGE_FEATURES)}, each once",
        )
    settings = of_model(model.config, data.edge_features)
    node_scales, of_edges = settings.scales()
    weights = model.state_dict()
    known: dict[str, Scale] = {**stored.measured.nodes, **SCALES}
    for kind, acorns in (("node", node_scales), ("edge", of_edges)):
        weight, bias = f"{kind}_encoder.mlp_0_weight", f"{kind}_encoder.mlp_0_bias"
        ours = [known[name] for name in acorns]
        weights[weight], weights[bias] = read_as_acorns(
            weights[weight], weights[bias], ours, list(acorns.values())
        )
    return AcornCheckpoint(settings.content(), acorn_weights(weights, model.config))


def _refusal(run: Path, why: str) -> InputError:
    return InputError(
        f"{run}: {why}; write its scores for acorn instead: bigtrk export acorn GRAPHS OUT "
        f"--run {run}"
    )
