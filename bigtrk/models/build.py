"""The model that a configuration names."""

from torch import nn

from bigtrk.models.settings import ModelConfig


def make_model(
    config: ModelConfig, n_node_features: int, n_edge_features: int, pt_head: bool = False
) -> nn.Module:
    """Makes the model of `config` for so many features; weights are drawn by torch's generator.

    pt_head: with a head for log pT, where the model has one.
    """
    assert config.has_pt_head or not pt_head, f"{config.name} has no head for log pT"
    return config.build(n_node_features, n_edge_features, pt_head)
