"""The settings of a model of PyG's layers."""

import inspect
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import Field, JsonValue

from bigtrk.errors import InputError
from bigtrk.models.attention_gnn import AttentionGNNConfig
from bigtrk.models.options import Linears, ModelSettings, Width
from bigtrk.models.user_model import UserModelConfig
from bigtrk.user_code import load_code, names_code

if TYPE_CHECKING:
    from bigtrk.models.pyg.model import PyGModel


class PyGConfig(ModelSettings):
    """A network of message-passing layers of PyG, and an edge network that reads its embeddings.

    `model.options.module=my_module:Net` names its class, which is made as `Net(n_node_features,
    n_edge_features, **others)` of the other options. It maps `(x, edge_index)`, or `(x, edge_index,
    edge_attr)`, to embeddings of nodes, without a word about ranks (docs/adding/pyg.md).
    """

    is_users: ClassVar[bool] = True
    hidden: ClassVar[None] = None
    precision: ClassVar[Literal["fp32"]] = "fp32"

    name: Literal["pyg"] = "pyg"
    """A network of PyG's layers."""
    decoder_hidden: Width = 64
    """Width of the hidden layers of the edge network, which scores an edge by the embeddings of its
    nodes and its own features."""
    decoder_layers: Linears = 2
    """Linear layers of the edge network."""
    recompute: Literal["none", "layer"] = "layer"
    """What the backward pass computes anew: nothing, or the edge network; the network of PyG keeps
    what it computes."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """`module`, the network's class, and what it is made with, by name: `model.options.width=64`.
    """

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def module(self) -> str:
        """Gives the `package.module:Class` of the network.

        Raises:
            InputError: none is named.
        """
        module = self.options.get("module")
        if not isinstance(module, str) or not names_code(module):
            raise InputError(
                "model.options.module: name the network's class, as package.module:Class"
            )
        return module

    def lacks_degrees(self) -> bool:
        """Says whether the network's class takes a `degree_histogram` that the options lack.

        Raises:
            InputError: the class is not named or cannot be imported.
        """
        made = load_code(self.module, _NetworkConfig.key)
        name = "degree_histogram"
        return name in inspect.signature(made).parameters and name not in self.options

    def build(
        self,
        n_node_features: int,
        n_edge_features: int,
        pt_head: bool,
    ) -> "PyGModel":
        """Makes the model for so many features, with fresh weights; on the CPU, where it tells its
        width.

        Raises:
            InputError: the class cannot be imported or made, or does not make a network that gives
                in a sector what it gives in the whole graph.
        """
        # Importing PyG takes seconds, which other models should not pay.
        from bigtrk.models.pyg.model import PyGModel

        options = {key: value for key, value in self.options.items() if key != "module"}
        network = _NetworkConfig(name=self.module, options=options)
        decoder = AttentionGNNConfig(
            hidden=self.decoder_hidden, mlp_layers=self.decoder_layers, recompute=self.recompute
        )
        sizes = n_node_features, n_edge_features
        with torch.device("cpu"):
            return PyGModel(network.build(*sizes, pt_head), decoder, *sizes)


class _NetworkConfig(UserModelConfig):
    """Makes the network as models of the user's own are made."""

    key: ClassVar[str] = "model.options.module"
    page: ClassVar[str] = "docs/adding/pyg.md"
