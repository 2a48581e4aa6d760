"""The models there are; `name` chooses one.

A new model is a file of its own and its settings' name in `AnyConfig` (docs/adding/model.md).
"""

from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field

from bigtrk.models.attention_gnn import AttentionGNNConfig
from bigtrk.models.edge_mlp import EdgeMLPConfig
from bigtrk.models.embedding import EmbeddingConfig
from bigtrk.models.interaction_gnn import InteractionGNNConfig

__all__ = [
    "AttentionGNNConfig",
    "EdgeMLPConfig",
    "EmbeddingConfig",
    "InteractionGNNConfig",
    "ModelConfig",
]

AnyConfig = InteractionGNNConfig | AttentionGNNConfig | EdgeMLPConfig | EmbeddingConfig
_OPTIONS = {
    config.model_fields["name"].default: config.model_fields for config in get_args(AnyConfig)
}


def _of_one_model(content: Any) -> Any:
    """Adds the name of the Interaction GNN where none is, as in configurations before the others.

    Raises:
        ValueError: an option is of other models only.
    """
    if not isinstance(content, dict):
        return content
    content = {"name": "interaction", **content}
    for key in content:
        models = [name for name, options in _OPTIONS.items() if key in options]
        # A name that is no text cannot be looked up; it is refused with the other values.
        known = isinstance(content["name"], str) and content["name"] in _OPTIONS
        if models and known and content["name"] not in models:
            raise ValueError(
                f"model.{key} is an option of {' and '.join(models)}; remove it for "
                f"{content['name']}"
            )
    return content


ModelConfig = Annotated[
    AnyConfig,
    Field(discriminator="name"),
    BeforeValidator(_of_one_model),
]
