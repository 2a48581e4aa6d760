"""Layers that cannot give in a sector what they give in the whole graph, found by their class.

What is not found so, such as a function that drops edges, the proof before a training finds.
"""

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch_geometric.nn import LayerNorm, MessageNorm, MessagePassing, aggr

from bigtrk.models.layer_names import told
from bigtrk.models.protocol import ContractError

_ORDERED = (
    aggr.LSTMAggregation,
    aggr.GRUAggregation,
    aggr.MLPAggregation,
    aggr.PatchTransformerAggregation,
    aggr.QuantileAggregation,
    aggr.SortAggregation,
)


def refuse(net: nn.Module) -> None:
    """Looks at all modules of `net`, within its layers too.

    Raises:
        ContractError: one averages over nodes or edges, drops some at random, pools them, depends
            on their order or keeps them for the next graph; or none passes messages.
    """
    for path, module in net.named_modules():
        why = next(_reasons(module), None)
        if why:
            raise ContractError(f"layer {_within(net, path)}{told(path, module)}: {why}")
    if not any(isinstance(module, MessagePassing) for module in net.modules()):
        raise ContractError(
            f"{type(net).__name__}: holds no layer of torch_geometric.nn.MessagePassing; a model "
            f"without one is named by model.name itself"
        )


def _within(net: nn.Module, path: str) -> str:
    """Names the layer that holds the module at `path`, if one does."""
    parts = path.split(".")
    for n in range(len(parts) - 1, 0, -1):
        outer = ".".join(parts[:n])
        if isinstance(net.get_submodule(outer), MessagePassing):
            return f"{told(outer, net.get_submodule(outer))} with "
    return ""


def _reasons(module: nn.Module) -> Iterator[str]:
    if _averages(module):
        yield (
            "averages over nodes or edges, of which a sector has a part; use torch.nn.LayerNorm, "
            "which takes each row alone (GENConv(norm='layer'), CGConv(batch_norm=False))"
        )
    if isinstance(module, LayerNorm) and module.mode != "node":
        yield "averages over the nodes of a graph; set its mode='node'"
    if (isinstance(module, _DropoutNd) and module.p > 0) or _drops(module):
        yield (
            "drops values at random, so that the two copies of a cut edge would differ; set its "
            "dropout to 0 (LayerNorm and optimizer.weight_decay regularise, too)"
        )
    if isinstance(module, nn.RReLU):
        yield "draws random slopes; use torch.nn.LeakyReLU"
    if type(module).__module__.startswith("torch_geometric.nn.pool"):
        yield "pools nodes of the whole graph; leave it out, so that each node keeps its row"
    if isinstance(module, _ORDERED):
        yield (
            "depends on the order of a node's edges, which differs between sectors; use sum, mean, "
            "max, softmax or attention"
        )
    if getattr(module, "cached", False):
        yield "keeps what it computes of its first graph for all others; set cached=False"


def _averages(module: nn.Module) -> bool:
    if isinstance(module, _BatchNorm | _InstanceNorm):
        return True
    by_row = isinstance(module, LayerNorm | MessageNorm)
    return type(module).__module__.startswith("torch_geometric.nn.norm") and not by_row


def _drops(module: nn.Module) -> bool:
    """Says whether a layer such as GATConv, or PyG's MLP, drops with a probability of its own."""
    found = getattr(module, "dropout", 0.0)
    shares = found if isinstance(found, list | tuple) else [found]
    return any(isinstance(share, float | int) and share > 0 for share in shares)
