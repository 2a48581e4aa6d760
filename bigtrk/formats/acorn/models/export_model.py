"""The Interaction GNN of a run, handed to acorn as a checkpoint."""

from pathlib import Path

from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError
from bigtrk.formats.acorn.models.checkpoint import AcornCheckpoint, write_checkpoint
from bigtrk.formats.acorn.models.hyper_parameters import ACORN_NODE_FEATURES, of_model
from bigtrk.formats.acorn.models.scales import read_as_acorns
from bigtrk.formats.acorn.models.weights import acorn_weights
from bigtrk.graphs.features import EDGE_FEATURES, SCALES, Scale
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.training.model_files import StoredModel, load_model


def export_model(run: Path, out: Path) -> AcornCheckpoint:
    """Writes the model that `run` ended with to `out`, a checkpoint of acorn's InteractionGNN2, and
    returns what it holds. A head for pT, which acorn has not, is left out.

    Raises:
        InputError: the run has no model, or one that acorn cannot hold; `out` is there already, or
            the disk refuses.
    """
    if out.exists() or out.is_symlink():
        raise InputError(f"{out}: is there already; name a file that is not")
    checkpoint = _as_acorns(run, load_model(run))
    with disk_errors():
        write_checkpoint(out, checkpoint)
    return checkpoint


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
