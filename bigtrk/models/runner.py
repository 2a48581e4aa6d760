"""Runs a layered model on a rank's sectors, with a halo exchange after each layer."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from bigtrk.tracing import traced

if TYPE_CHECKING:
    from bigtrk.models.protocol import ExchangeAll, LayeredModel, SectorInputs


def run_layers(
    model: "LayeredModel[Any]", sectors: "list[SectorInputs]", exchange: "ExchangeAll"
) -> list[Tensor]:
    """Computes what `model` makes of each sector, in the order of `sectors`.

    Each layer is called once for all sectors: engines that shard parameters gather them by hooks
    of that call, so all ranks must make the same calls, however their sectors differ. The exchange
    runs outside of the layers, so what these recompute in the backward pass sends nothing again.
    """
    with traced("encode"):
        graphs, nodes, edges = model.encode(sectors)
    for i, layer in enumerate(model.layer_calls()):
        owned, edges = layer(graphs, nodes, edges)
        with traced(f"layer {i} exchange"):
            nodes = model.exchanged(graphs, owned, exchange)
    with traced("decode"):
        return model.decode(graphs, nodes, edges)
