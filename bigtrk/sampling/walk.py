"""The parameters of sampling, and the result of an engine."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bigtrk.errors import InputError
from bigtrk.sampling.subgraphs import InEdges, Rows


@dataclass(frozen=True)
class Walk:
    """A walk of `depth` hops (d) against the edges, along `fanout` of a node's edges at most (s).

    Raises:
        InputError: either is below 1, or too large to count in 32 bits.
    """

    depth: int = 3
    fanout: int = 6

    def __post_init__(self) -> None:
        for name in ("depth", "fanout"):
            if not 1 <= getattr(self, name) < 2**31:
                value = getattr(self, name)
                raise InputError(f"sampling {name}={value}: must be 1 or more, in 32 bits")


class Bulk(NamedTuple):
    """The subgraphs of R roots one after another, all int64.

    node [M], node_at [R + 1], edge [L] as in Subgraphs; edge_at [R + 1]: the row where each root's
    edges begin, like node_at; source, destination [L]: rows of `node`.
    """

    node: Rows
    node_at: Rows
    edge: Rows
    edge_at: Rows
    source: Rows
    destination: Rows


class Sampler(Protocol):
    """Samples the subgraphs of `roots` [R]; `key` is that of the epoch (draws.epoch_key)."""

    def __call__(self, graph: InEdges, roots: Rows, walk: Walk, key: int) -> Bulk: ...
