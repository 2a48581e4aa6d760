"""Settings of a user's own models: classes that keep the contract, and networks of PyG's layers."""

import inspect
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, BaseModel, Field, JsonValue
from torch import nn

from bigtrk.config import nearest, parse
from bigtrk.errors import InputError
from bigtrk.models.attention_gnn import AttentionGNNConfig
from bigtrk.models.options import Kind, Linears, ModelSettings, Width
from bigtrk.user_code import load_code, names_code, users_errors

if TYPE_CHECKING:
    from bigtrk.models.pyg_model import PyGModel


def _path(name: str) -> str:
    if not names_code(name):
        raise ValueError("must name your class of a model as package.module:Class")
    return name


class UserModelConfig(ModelSettings):
    """A class of your own, for example `my_package.my_module:MyModel`, which keeps the contract of
    `bigtrk/models/protocol.py`. bigtrk calls `MyModel(n_node_features, n_edge_features,
    **options)`. If the class has an attribute `Options`, a pydantic class, that checks the options.

    Reading such settings imports nothing; only `build` does.
    """

    key: ClassVar[str] = "model.name"  # the setting that names the class, for messages
    page: ClassVar[str] = "docs/adding/own_model.md"  # where they send their reader
    is_users: ClassVar[bool] = True
    hidden: ClassVar[None] = None
    recompute: ClassVar[Literal["none"]] = "none"
    precision: ClassVar[Literal["fp32"]] = "fp32"

    name: Annotated[str, AfterValidator(_path)]
    """The class as `package.module:Class`, installed or in the folder where you start."""
    gives: Kind = "edge"
    """Its output: a logit for each edge (`edge`), or an embedding of each hit (`hit`)."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of its class, by name: `model.options.width=64`."""

    @property
    def kind(self) -> Kind:
        return self.gives

    def build(self, n_node_features: int, n_edge_features: int, pt_head: bool) -> nn.Module:  # noqa: ARG002
        """Makes the user's model. InputError: no torch.nn.Module, or it fails with the options."""
        made = load_code(self.name, self.key)
        if not (isinstance(made, type) and issubclass(made, nn.Module)):
            raise self._bad("is not a subclass of torch.nn.Module; make it one")
        sizes = n_node_features, n_edge_features
        options = self._checked_options(made, sizes)
        given = f"{n_node_features} node features, {n_edge_features} edge features, model.options"
        failure = f"{self.key}={self.name}: fails when it is called with {given}"
        with users_errors(failure, f"correct model.options or the class (see {self.page})"):
            return made(*sizes, **options)

    def _checked_options(self, made: type[nn.Module], sizes: tuple[int, int]) -> dict[str, Any]:
        """Returns the keyword arguments of the user's class, checked by its `Options` if any."""
        checker = getattr(made, "Options", None)
        if isinstance(checker, type) and issubclass(checker, BaseModel):
            self._refuse_unknown(list(checker.model_fields))  # pydantic would ignore them
            return dict(parse(checker, self.options, f"model.options of {self.name}"))
        taken = inspect.signature(made)
        if not any(one.kind is one.VAR_KEYWORD for one in taken.parameters.values()):
            self._refuse_unknown(list(taken.parameters)[len(sizes) :])
        try:
            taken.bind(*sizes, **self.options)
        except TypeError as error:
            said = "cannot be called with the numbers of node and edge features and model.options"
            raise self._bad(f"{said} ({error}); correct model.options or the class") from None
        return dict(self.options)

    def _refuse_unknown(self, known: list[str]) -> None:
        for key in self.options:
            if key not in known:
                hint = nearest(key, known) if known else "; it has no options"
                raise self._bad(f"takes no model.options.{key}{hint}")

    def _bad(self, how: str) -> InputError:
        return InputError(f"{self.key}={self.name}: {how} (see {self.page})")


class PyGConfig(ModelSettings):
    """A network of message-passing layers of PyG, and an edge network that reads its embeddings.

    `model.options.module=my_module:Net` names its class. bigtrk calls `Net(n_node_features,
    n_edge_features, **others)` with the other options. It maps `(x, edge_index)`, or `(x,
    edge_index, edge_attr)`, to embeddings of nodes, without code for ranks (docs/adding/pyg.md).
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
    """Parts that the backward pass computes again: none, or the edge network. The network of PyG
    keeps its activations."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """`module`, the network's class, and its arguments by name: `model.options.width=64`."""

    @property
    def module(self) -> str:
        """The network's `package.module:Class`; InputError if the options name none."""
        module = self.options.get("module")
        if not isinstance(module, str) or not names_code(module):
            raise InputError("model.options.module: must name your network as package.module:Class")
        return module

    def lacks_degrees(self) -> bool:
        """Whether the network's class takes a `degree_histogram` that the options lack."""
        made = load_code(self.module, _NetworkConfig.key)
        name = "degree_histogram"
        return name in inspect.signature(made).parameters and name not in self.options

    def build(self, n_node_features: int, n_edge_features: int, pt_head: bool) -> "PyGModel":
        """Makes the model. InputError: the class fails, or its network is not exact in a sector."""
        # Importing PyG takes seconds, which other models should not pay.
        from bigtrk.models.pyg_model import PyGModel

        options = {key: value for key, value in self.options.items() if key != "module"}
        network = _NetworkConfig(name=self.module, options=options)
        decoder = AttentionGNNConfig(
            hidden=self.decoder_hidden, mlp_layers=self.decoder_layers, recompute=self.recompute
        )
        sizes = n_node_features, n_edge_features
        with torch.device("cpu"):
            return PyGModel(network.build(*sizes, pt_head), decoder, *sizes)


class _NetworkConfig(UserModelConfig):
    """The settings that build the network of a PyGConfig."""

    key: ClassVar[str] = "model.options.module"
    page: ClassVar[str] = "docs/adding/pyg.md"
