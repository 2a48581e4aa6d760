"""Imports acorn's Interaction GNNs as runs, and exports bigtrk's own to acorn.

acorn and bigtrk divide each column by a scale before a model reads it, but by different ones. If a
feature's values are not known beforehand, bigtrk also subtracts a mean. So the first layer, W x +
b, is adapted to the columns of the other program, and a model's results stay the same.
"""

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
    HyperParameters,
    of_model,
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

_ONLY = "bigtrk imports only models of acorn's InteractionGNN2 that its Interaction GNN matches"


def load_acorn_weights(model: InteractionGNN, state: Mapping[str, Tensor]) -> None:
    """Copies acorn's parameters, named as in its `state_dict`, into `model`.

    The last layer's node network is ignored, since nothing reads its result. A pT head, which acorn
    does not have, keeps its weights.
    """
    names, own = acorn_names(model.config), model.state_dict()
    for name in state:
        if name not in names:
            raise InputError(
                f"its state_dict has {one_line(name)}, but its hyper_parameters give a model "
                f"without it"
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
    try:
        settings = parse(HyperParameters, known, f"{file}: hyper_parameters")
    except InputError as error:
        raise InputError(f"{error}; {_ONLY}") from None
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
        raise _refusal(run, f"acorn has no model like {stored.configuration.model.name}")
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
            f"its model reads the edge features {', '.join(data.edge_features) or '(none)'}, but "
            f"acorn's models read some of {', '.join(EDGE_FEATURES)}, each once",
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
        f"{run}: {why}; write its scores for acorn instead: bigtrk export acorn GRAPHS OUT "
        f"--run {run}"
    )
