"""One layer of the Interaction GNN: all edges, then the owned nodes.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, H = hidden,
P = 2 with `concatenate` (state and encoded features), else 1.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from bigtrk.models.aggregation import accumulable, gather, segment_sum
from bigtrk.models.mlp import Linear, Perceptrons, rest_of_mlp
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.tracing import traced


class InteractionLayer(Perceptrons):
    """Updates all edges, then, where asked, the owned nodes.

    The edge MLP's first linear layer reads [edge, source, destination], which are never
    concatenated: the nodes' share is computed per node and then gathered, since nodes are 20 times
    fewer than edges and the concatenation would be the widest tensor of the model.
    """

    def __init__(self, config: InteractionGNNConfig, has_node_update: bool, name: str) -> None:
        """`name`: of its ranges in a profiler's trace."""
        super().__init__()
        self.config, self.name = config, name
        parts, sums = (2 if config.concatenate else 1), (2 if config.in_out else 1)
        hidden = config.hidden
        self._columns = [*[hidden] * parts, parts * hidden, parts * hidden]
        self.add_mlp("edge_mlp", sum(self._columns), hidden, config.mlp_layers)
        if has_node_update:
            self.add_mlp("node_mlp", (sums + parts) * hidden, hidden, config.mlp_layers)

    def forward(
        self,
        run: Callable[..., tuple[Tensor | None, Tensor]],
        x: Tensor,
        e: Tensor,
        edge_index: Tensor,
        n_owned: int,
        update_nodes: bool,
    ) -> tuple[Tensor | None, Tensor]:
        """Nodes [N, H] and edges [E, H] -> owned nodes [n_owned, H] (None without update) and
        edges [E, H], by `run(self, ...)`.
        """
        return run(self, x, e, edge_index, n_owned, update_nodes)

    def compute(
        self,
        nodes: list[Tensor],
        edges: list[Tensor],
        edge_index: Tensor,
        n_owned: int,
        update_nodes: bool,
    ) -> tuple[Tensor | None, Tensor]:
        """Nodes x [N, H] and edges e [E, H], each followed by their encoded features if
        concatenated -> owned nodes [n_owned, H] (None without update), edges [E, H].
        """
        x = torch.cat(nodes, dim=1)
        with traced(f"{self.name} edge"):
            e = self._compute_edges(x, edges, edge_index)
        if not update_nodes:
            return None, e
        source, destination = edge_index
        with traced(f"{self.name} node"):
            sums = [segment_sum(e, index, len(x)) for index in (destination, source)]
            return self.update(sums, x, n_owned), e

    def _compute_edges(self, x: Tensor, edges: list[Tensor], edge_index: Tensor) -> Tensor:
        source, destination = edge_index
        of_source, of_destination = self.of_nodes(x)
        # In place: a fresh tensor of all edges costs a CPU more than the addition.
        total = gather(of_source, source)
        total += gather(of_destination, destination)
        for part, weight in zip(edges, self.of_edges(), strict=True):
            total += F.linear(part, weight)
        return rest_of_mlp(total, self.rest_of_edges())

    def of_nodes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What a node adds to the edges that leave it, and to those that reach it: [N, P H] ->
        twice [N, H].
        """
        weight, bias = self.linear("edge_mlp_0")
        *_, of_source, of_destination = torch.split(weight, self._columns, dim=1)
        return F.linear(x, of_source, bias), F.linear(x, of_destination)

    def of_edges(self) -> list[Tensor]:
        """The first linear layer's weights [H, H] of the P parts of an edge."""
        weight, _ = self.linear("edge_mlp_0")
        return list(torch.split(weight, self._columns, dim=1)[:-2])

    def rest_of_edges(self) -> list[Linear]:
        """The edge MLP's later linear layers."""
        return self.mlp("edge_mlp", self.config.mlp_layers)[1:]

    def update(self, sums: Sequence[Tensor], x: Tensor, n_owned: int) -> Tensor:
        """Owned nodes from the sums [N, H] of their incoming and of their outgoing edges, and their
        parts x [N, P H].
        """
        sums = [total[:n_owned] for total in sums]
        if not self.config.in_out:
            sums = [sums[0] + sums[1]]
        first, *rest = self.mlp("node_mlp", self.config.mlp_layers)
        values = F.linear(torch.cat([*sums, x[:n_owned]], dim=1), *first)
        return accumulable(rest_of_mlp(values, rest))
