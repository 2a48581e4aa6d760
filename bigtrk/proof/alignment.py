"""The rows of a tensor that a model makes of a sector, beside those that it makes of the graph.

Shapes: N nodes of a sector of which the first n_owned are owned, E edges.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from bigtrk.graphs.sector import Sector
from bigtrk.proof.outcome import relative

# Values between layers are compared with at least this: some are zero but for rounding.
_LEAST = 1e-6
Of = Literal["nodes", "edges", "graph"]


class Aligned(NamedTuple):
    """A sector's tensor `found`, and `expected`, the whole graph's in the same rows, which lie
    along `axis`; `sure`: those that a sector knows, of its owned nodes, or of edges that end there.
    """

    found: Tensor
    expected: Tensor
    of: Of
    axis: int
    sure: Tensor

    @property
    def difference(self) -> float:
        """Measures how far the rows differ that the sector knows."""
        rows = self.sure.nonzero()[:, 0]
        found, expected = (
            values.index_select(self.axis, rows) for values in (self.found, self.expected)
        )
        return relative(found, expected, _LEAST)

    def mended(self) -> Tensor:
        """Puts the whole graph's rows in the place of those that the sector does not know."""
        shape = [-1 if axis == self.axis else 1 for axis in range(self.found.dim())]
        return torch.where(self.sure.view(shape), self.found, self.expected)


class Rows:
    """The rows of a sector in the whole graph that it is a part of."""

    def __init__(self, whole: Sector, part: Sector) -> None:
        owned = torch.arange(part.n_nodes) < part.n_owned
        nodes, edges = part.node_id, whole.edge_id.argsort()[part.edge_id]
        # (rows of the whole's tensor, of the part's): the whole's of each of these, and if known.
        self._kinds: dict[tuple[int, int], tuple[Of, Tensor, Tensor]] = {
            (whole.n_nodes, part.n_owned): ("nodes", nodes[: part.n_owned], owned[: part.n_owned]),
            (whole.n_nodes, part.n_nodes): ("nodes", nodes, owned),
            (whole.n_edges, part.n_edges): ("edges", edges, part.owns_edge),
        }

    def align(self, whole: Tensor, part: Tensor) -> Aligned | None:
        """Aligns what was made of the whole with what was made of the sector; None where neither
        nodes nor edges can be told in them. Tensors without rows are compared as they are.
        """
        if whole.dim() != part.dim():
            return None
        sizes = list(zip(whole.shape, part.shape, strict=True))
        for axis, pair in enumerate(sizes):
            if pair in self._kinds:
                of, rows, sure = self._kinds[pair]
                expected = whole.detach().index_select(axis, rows)
                same = expected.shape == part.shape
                return Aligned(part.detach(), expected, of, axis, sure) if same else None
        if whole.shape != part.shape:
            return None
        found, expected = part.detach().reshape(-1), whole.detach().reshape(-1)
        return Aligned(found, expected, "graph", 0, torch.ones(len(found), dtype=torch.bool))
