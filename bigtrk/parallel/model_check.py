"""Finds out before training whether the ranks' models would wait for each other."""

from torch import nn

from bigtrk.models.check import check_model
from bigtrk.models.options import Kind
from bigtrk.parallel.collectives import check_agreement, together


def check_on_all_ranks(
    model: nn.Module, n_node_features: int, n_edge_features: int, kind: Kind = "edge"
) -> None:
    """Checks this rank's `model`, and that all ranks' make the same exchanges. Collective.

    Raises:
        InputError: on all ranks, a model breaks its contract (models/protocol.py), or one makes
            another number of exchanges, or wider ones.
    """
    widths = together(lambda: check_model(model, n_node_features, n_edge_features, kind))
    told = f"{len(widths)} of widths {widths}"
    check_agreement({"number of halo exchanges in its model": told})
