"""Weights of GNN4ITk acorn's InteractionGNN2, to our names and back."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from bigtrk.errors import InputError, one_line
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.settings import InteractionGNNConfig

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
