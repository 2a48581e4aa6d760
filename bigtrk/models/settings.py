"""The settings of all models; `name` chooses one.

A new model is a file of its own and its settings in `AnyConfig` (docs/adding/model.md).
"""

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag
from torch import nn

from bigtrk.models.attention_gnn import AttentionGNNConfig
from bigtrk.models.interaction_gnn import InteractionGNNConfig
from bigtrk.models.mlps import EdgeMLPConfig, EmbeddingConfig
from bigtrk.models.user_model import PyGConfig, UserModelConfig

__all__ = [
    "MODELS",
    "AttentionGNNConfig",
    "EdgeMLPConfig",
    "EmbeddingConfig",
    "InteractionGNNConfig",
    "ModelConfig",
    "PyGConfig",
    "UserModelConfig",
]

_OWN = "package.module:Class"
AnyConfig = (
    Annotated[InteractionGNNConfig, Tag("interaction")]
    | Annotated[AttentionGNNConfig, Tag("attention")]
    | Annotated[EdgeMLPConfig, Tag("mlp")]
    | Annotated[EmbeddingConfig, Tag("embedding")]
    | Annotated[PyGConfig, Tag("pyg")]
    | Annotated[UserModelConfig, Tag(_OWN)]
)
MODELS = {tag.tag: config for config, tag in map(get_args, get_args(AnyConfig))}
_OPTIONS = {name: config.model_fields for name, config in MODELS.items()}


def name(content: Any) -> Any:
    """Returns the tag of the settings' class; pydantic's messages quote this function's name."""
    found = content.get("name") if isinstance(content, dict) else getattr(content, "name", None)
    return _OWN if isinstance(found, str) and ":" in found else found


def _of_one_model(content: Any) -> Any:
    """Adds the default name; raises ValueError if `content` has another model's option."""
    if not isinstance(content, dict):
        return content
    content = {"name": "interaction", **content}
    tag = name(content)
    # A name that is no text cannot be looked up; pydantic refuses it later.
    known = isinstance(tag, str) and tag in _OPTIONS
    for key in content:
        models = [model for model, options in _OPTIONS.items() if key in options]
        if models and known and tag not in models:
            own = f", or set model.options.{key}, if the class itself takes it"
            raise ValueError(
                f"model.{key} is only for model.name={' or '.join(models)}; remove it for "
                f"{content['name']}{own if 'options' in _OPTIONS[tag] else ''}"
            )
    return content


ModelConfig = Annotated[
    AnyConfig, Field(discriminator=Discriminator(name)), BeforeValidator(_of_one_model)
]


def make_model(
    config: ModelConfig, n_node_features: int, n_edge_features: int, pt_head: bool = False
) -> nn.Module:
    """Makes the model of `config`, with weights drawn by torch's global generator."""
    assert config.has_pt_head or not pt_head, f"{config.name} has no head for log pT"
    return config.build(n_node_features, n_edge_features, pt_head)
