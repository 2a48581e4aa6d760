"""The model that a configuration names."""

from bigtrk.models.attention_gnn import AttentionGNN
from bigtrk.models.edge_mlp import EdgeMLP
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.settings import AttentionGNNConfig, InteractionGNNConfig, ModelConfig

Model = InteractionGNN | AttentionGNN | EdgeMLP


def make_model(
    config: ModelConfig, n_node_features: int, n_edge_features: int, pt_head: bool = False
) -> Model:
    """The model of `config` for so many features; weights are drawn by torch's generator.

    pt_head: with a head for log pT, which the Interaction GNN alone has.
    """
    features = n_node_features, n_edge_features
    if isinstance(config, InteractionGNNConfig):
        return InteractionGNN(config, *features, pt_head)
    assert not pt_head, f"{config.name} has no head for log pT"
    if isinstance(config, AttentionGNNConfig):
        return AttentionGNN(config, *features)
    return EdgeMLP(config, *features)
