"""A layer's nodes by autograd in float64, and by its pass on the same numbers."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from bigtrk.models.edges.passes import EdgePass, GraphPass, Layer
from bigtrk.models.edges.states import EdgeStates, Encoded, MemoryStore, Workspace
from bigtrk.models.interaction_gnn import activations
from bigtrk.models.protocol import Ends
from tests.models.fused import Results, grad_of


@dataclass(frozen=True)
class NodeCase:
    """Random nodes between their edges' sums and shares. encoded: they are read again; in_out: the
    sums of incoming and outgoing edges are read apart.
    """

    hidden: int = 16
    layers: int = 2
    encoded: bool = True
    in_out: bool = True
    n_nodes: int = 70
    n_owned: int = 50
    dtype: torch.dtype = torch.float32

    @property
    def parts(self) -> int:
        return 2 if self.encoded else 1

    @property
    def sums(self) -> int:
        return 2 if self.in_out else 1


class NodeInputs:
    """Nodes and sums [N, H], gradients of a pass's results; weights of edges and nodes."""

    def __init__(self, case: NodeCase) -> None:
        self._generator = torch.Generator().manual_seed(7)
        hidden, size = case.hidden, (case.n_nodes, case.hidden)
        columns = 3 * case.parts * hidden, *[hidden] * (case.layers - 1)
        self.weights = self._linears(hidden, columns)
        self.n_edge = len(self.weights)
        columns = (case.parts + case.sums) * hidden, *[hidden] * (case.layers - 1)
        self.weights += self._linears(hidden, columns)
        self.nodes = [self._drawn(*size).relu().to(case.dtype) for _ in range(case.parts)]
        self.outgoing, self.incoming = (self._drawn(*size).relu() for _ in range(2))
        self.of_owned = self._drawn(case.n_owned, hidden)
        self.of_shares = self._drawn(*size), self._drawn(*size)

    def _linears(self, hidden: int, columns: tuple[int, ...]) -> list[Tensor]:
        sizes = [((hidden, n), (hidden,)) for n in columns]
        return [self._drawn(*one, scale=hidden**-0.5) for size in sizes for one in size]

    def _drawn(self, *size: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(size, generator=self._generator)


def exact(case: NodeCase) -> Results:
    """Computes the pass by torch's own operations and autograd."""
    inputs = NodeInputs(case)
    weights = [weight.double().requires_grad_() for weight in inputs.weights]
    nodes = [values.double().requires_grad_() for values in inputs.nodes]
    outgoing, incoming = (
        values.double().requires_grad_() for values in (inputs.outgoing, inputs.incoming)
    )
    of_source, of_destination = weights[0][:, case.parts * case.hidden :].chunk(2, dim=1)
    beside = torch.cat(nodes, dim=1)
    shares = [beside @ of_source.T + weights[1], beside @ of_destination.T]
    sums = [incoming, outgoing] if case.in_out else [incoming + outgoing]
    made = torch.cat([*sums, beside], dim=1)[: case.n_owned]
    first, first_bias, *others = weights[inputs.n_edge :]
    made = made @ first.T + first_bias
    for weight, bias in zip(others[::2], others[1::2], strict=True):
        made = layer_norm(made, made.shape[-1:]).relu() @ weight.T + bias
    made = made.relu()
    gradients = zip([made, *shares], [inputs.of_owned, *inputs.of_shares], strict=True)
    torch.stack([(values * grad).sum() for values, grad in gradients]).sum().backward()
    found = {"made": made, "of source": shares[0], "of destination": shares[1]}
    found |= {f"gradient of nodes {i}": grad_of(values) for i, values in enumerate(nodes)}
    found |= {"gradient of outgoing": grad_of(outgoing), "gradient of incoming": grad_of(incoming)}
    read = [weights[1], *weights[inputs.n_edge :]]
    found |= {f"gradient of weight {i}": grad_of(weight) for i, weight in enumerate(read)}
    found["gradient of the first weight"] = grad_of(weights[0])
    return Results({name: values.detach() for name, values in found.items()})


def computed(case: NodeCase, of_class: type[EdgePass], device: torch.device) -> Results:
    """Computes it by a pass of this class, over a graph without edges."""
    inputs = NodeInputs(case)
    weights = [weight.to(device) for weight in inputs.weights]
    x, *others = (values.to(device) for values in inputs.nodes)
    work = Workspace(case.hidden, "chunk", case.dtype, device)
    encoded = Encoded(others[0]) if case.encoded else None
    edges = EdgeStates(0, case.hidden, work, MemoryStore(), case.encoded)
    no_edges = torch.zeros(2, 0, dtype=torch.int64, device=device)
    graph = GraphPass(no_edges, case.n_owned, work, encoded, edges)
    each = activations(case.layers)
    layer = Layer(graph, 1, each, [], each, case.in_out)
    make = of_class.maker(layer, weights)
    of_x, of_weights = make(x, dtype=work.sums), [make(weight) for weight in weights]
    made = of_class(layer, weights, x)
    outgoing, incoming = inputs.outgoing.to(device), inputs.incoming.to(device)
    ends = made._ends._replace(of_source=outgoing.clone(), of_destination=incoming.clone())
    found = {"made": made._updated(ends)}
    found["of source"], found["of destination"] = (share.clone() for share in made._ends[:2])
    edges.sums = Ends.between(outgoing, incoming, no_edges)
    made._kept_of_nodes = made.kept
    outer = made.update_backward(inputs.of_owned.to(device), of_x, of_weights)
    found["gradient of outgoing"], found["gradient of incoming"] = outer[:2]
    source, destination = (share.to(device) for share in inputs.of_shares)
    made._shares_backward((source, destination), of_x, of_weights)
    found["gradient of nodes 0"] = of_x
    if encoded:
        found["gradient of nodes 1"] = encoded.take()
    for i, of_weight in enumerate([of_weights[1], *of_weights[inputs.n_edge :]]):
        found[f"gradient of weight {i}"] = of_weight
    found["gradient of the first weight"] = of_weights[0]
    return Results({name: values.cpu() for name, values in found.items()})
