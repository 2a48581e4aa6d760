"""Models that are wrong in a sector, each in one way; `Sums` is what they would be if right."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bigtrk.models.protocol import Exchange


class Conv(nn.Module):
    """Adds to each node what its incoming edges make of the nodes at their other ends."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, e: Tensor, edge_index: Tensor) -> Tensor:
        source, destination = edge_index
        messages = (self.linear(x)[source] + e).tanh()
        return x.index_add(0, destination, messages)


class Sums(nn.Module):
    """Two layers, an exchange after each, and a linear layer of what an edge's ends have."""

    def __init__(self, n_node_features: int, n_edge_features: int, hidden: int = 6) -> None:
        super().__init__()
        self.nodes = nn.Linear(n_node_features, hidden)
        self.edges = nn.Linear(n_edge_features, hidden)
        self.convs = nn.ModuleList(Conv(hidden) for _ in range(2))
        self.last = nn.Linear(hidden, 1)

    def forward(
        self, x: Tensor, e: Tensor, edge_index: Tensor, n_owned: int, exchange: Exchange
    ) -> Tensor:
        x, e = self.nodes(x), self.edges(e)
        for k, conv in enumerate(self.convs):
            rows = self.between(conv(x, e, edge_index), e, edge_index, n_owned)
            x = self.exchanged(k, rows, n_owned, exchange)
        return self.scores(x, edge_index)

    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:  # noqa: ARG002
        return rows

    def exchanged(self, k: int, rows: Tensor, n_owned: int, exchange: Exchange) -> Tensor:  # noqa: ARG002
        return exchange(rows[:n_owned])

    def scores(self, x: Tensor, edge_index: Tensor) -> Tensor:
        made: Tensor = self.last(x[edge_index[0]] * x[edge_index[1]])
        return made[:, 0]


class Normalised(Sums):
    """BatchNorm of nodes."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.norm = nn.BatchNorm1d(6)

    def between(self, rows: Tensor, *_: Any) -> Tensor:
        made: Tensor = self.norm(rows)
        return made


class Centred(Sums):
    def between(self, rows: Tensor, *_: Any) -> Tensor:
        return rows - rows.mean(0)


class CentredInEval(Sums):
    def between(self, rows: Tensor, *_: Any) -> Tensor:
        return rows if self.training else rows - rows.mean(0)


class Dropped(Sums):
    def between(self, rows: Tensor, *_: Any) -> Tensor:
        return functional.dropout(rows, 0.2)


class ExchangesOnce(Sums):
    """The second layer reads halo rows that the first has made."""

    def exchanged(self, k: int, rows: Tensor, n_owned: int, exchange: Exchange) -> Tensor:
        return exchange(rows[:n_owned]) if k else rows


class ExchangesAll(Sums):
    def exchanged(self, k: int, rows: Tensor, n_owned: int, exchange: Exchange) -> Tensor:  # noqa: ARG002
        return exchange(rows)


class IdleWithoutEdges(Sums):
    """A sector of nodes without edges passes over the exchanges; an empty one does not."""

    def forward(
        self, x: Tensor, e: Tensor, edge_index: Tensor, n_owned: int, exchange: Exchange
    ) -> Tensor:
        if n_owned and edge_index.shape[1] == 0:
            return self.scores(self.nodes(x), edge_index)
        return super().forward(x, e, edge_index, n_owned, exchange)


class Scaled(nn.Module):
    """Cannot do without edges, where there is a node."""

    def forward(self, e: Tensor, n_owned: int) -> Tensor:
        if n_owned and len(e) == 0:
            raise RuntimeError("no edges")
        return e.tanh()


class StumblesWithoutEdges(Sums):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.scaled = Scaled()

    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:
        return rows.index_add(0, edge_index[1], self.scaled(e, n_owned))


class Degrees(Sums):
    """Divides by the degrees of sources, which a sector does not know of halo nodes."""

    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:  # noqa: ARG002
        source, destination = edge_index
        degree = torch.bincount(destination, minlength=len(rows)).to(rows) + 1
        return rows.index_add(0, destination, e / degree[source][:, None])


class SumsAtSources(Sums):
    """Attention over the edges that end at a node, summed where they begin."""

    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:  # noqa: ARG002
        source, destination = edge_index
        weight = e[:, 0].exp()
        total = torch.zeros(len(rows)).to(rows).index_add(0, destination, weight)
        share = weight / total.index_select(0, destination)
        return rows.index_add(0, source, share[:, None] * e)


class Counts(Sums):
    def between(self, rows: Tensor, *_: Any) -> Tensor:
        return rows / (1 + len(rows))


class AddsBesideHalo(Sums):
    """Gives a torch function one more tensor in a sector with halo rows than in others."""

    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:  # noqa: ARG002
        return torch.where(rows > 0, rows, rows.mean(0) if n_owned < len(rows) else 0.0)


class Numbered(Sums):
    """Reads the number of a row."""

    def between(self, rows: Tensor, *_: Any) -> Tensor:
        return rows + torch.arange(len(rows)).to(rows)[:, None].sin()


class NotANumber(Sums):
    """Divides by the number of rows, which cancels unless there are none."""

    def between(self, rows: Tensor, *_: Any) -> Tensor:
        count = torch.tensor(float(len(rows)))
        return rows * (self.last.bias * count / count)


class HalfDetached(Sums):
    """No gradient goes back through halo rows."""

    def exchanged(self, k: int, rows: Tensor, n_owned: int, exchange: Exchange) -> Tensor:  # noqa: ARG002
        rows = exchange(rows[:n_owned])
        return torch.cat([rows[:n_owned], rows[n_owned:].detach()])


class Halved(Sums):
    """Sums in bfloat16, whatever it is given."""

    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:  # noqa: ARG002
        sums = torch.zeros(len(rows), dtype=torch.bfloat16)
        return rows + sums.index_add(0, edge_index[1], e[:, 0].bfloat16())[:, None]


class Hidden(Centred):
    """Is wrong as soon as its gate, which begins at zero, is trained."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.gate = nn.Parameter(torch.zeros(1))

    def between(self, rows: Tensor, *_: Any) -> Tensor:
        return rows - self.gate * rows.mean(0) if len(rows) else rows + self.gate


class Clamped(Sums):
    """Clamps what a sector adds to a gradient."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.last.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))


class Lazy(Sums):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.last = nn.LazyLinear(1)


class Gather(torch.autograd.Function):
    """Takes rows, with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.n = len(rows)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.n, grad.shape[1]).index_add(0, index, grad), None


class GathersHalo(ExchangesOnce):
    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:  # noqa: ARG002
        source, destination = edge_index
        return rows.index_add(0, destination, Gather.apply(rows, source))


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:  # noqa: ARG004
        return rows.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004
        raise RuntimeError("not written")


class FailsBackward(Sums):
    def between(self, rows: Tensor, *_: Any) -> Tensor:
        made: Tensor = NoGradient.apply(rows)
        return made
