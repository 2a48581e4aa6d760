"""Finds out whether a model keeps the promises of protocol.py, by running it on small graphs.

Shapes: N nodes of which the first n_owned are owned, E edges, H the width of an exchange.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bigtrk.errors import reason
from bigtrk.models.layer_names import failing_layer
from bigtrk.models.options import Kind
from bigtrk.models.protocol import ContractError, LayeredModel, SectorInputs
from bigtrk.models.state_check import check_state
from bigtrk.user_code import no_exit

_NODES, _OWNED, _EDGES = 12, 8, 40
_SAME = 1e-4  # relative and absolute: a device may sum in another order
_RULES = "see bigtrk/models/protocol.py"
IN_BACKWARD = (
    "calls the exchange in its backward pass, where ranks would wait for each other; keep the "
    "exchange outside of what is recomputed (torch.utils.checkpoint)"
)


class _Pass(NamedTuple):
    """The widths of a forward pass's exchanges, and what its result gives each parameter."""

    widths: list[int]
    gradients: dict[str, Tensor]


def check_model(
    model: nn.Module, n_node_features: int, n_edge_features: int, kind: Kind = "edge"
) -> list[int]:
    """Runs `model` on a random sector and on an empty one, forward and backward; its weights and
    torch's random numbers stay as they were. Gives the width of each of its exchanges.

    Raises:
        ContractError: what `check_state` says; the model fails, its result has another shape than
            [E], [E, 2] or, of a hit model, [N, D], or another type than float32 or float64, or is
            not finite; the exchange gets other rows than the owned ones, or is called another
            number of times for the empty sector, or in the backward pass; a parameter gets no
            gradient, or from the empty sector one that is not zero; a layered model makes of a
            sector among several another result than of it alone.
    """
    check_state(model)
    weight = next(model.parameters())
    sector = random_sector(n_node_features, n_edge_features, _OWNED, weight)
    none = torch.empty(2, 0, dtype=torch.int64, device=weight.device)
    empty = SectorInputs(sector.x[:0], sector.edge_features[:0], none, 0)
    with own_random_numbers(weight), torch.enable_grad():
        widths = _check_pass(model, sector, "a sector", kind).widths
        of_empty = _check_pass(model, empty, "an empty sector", kind)
        if isinstance(model, LayeredModel):
            _check_several(model, [sector, empty, sector._replace(x=-sector.x)])
    if of_empty.widths != widths:
        raise _broken(
            model,
            f"makes {_told(widths)} for a sector and {_told(of_empty.widths)} for an empty one, "
            f"so ranks would wait for each other; make the same whatever a sector holds",
        )
    for name, gradient in of_empty.gradients.items():
        if (gradient != 0).any():  # NaN is not 0 either
            raise _broken(
                model,
                f"gives its parameter {name} a gradient that is not zero for an empty sector; "
                f"take no means over its rows, which are none",
            )
    return widths


def random_sector(
    n_node_features: int, n_edge_features: int, n_owned: int, like: Tensor
) -> SectorInputs:
    """Draws a sector of 12 nodes, the same in every call; its tensors have the type and the device
    of `like`, and each edge ends at an owned node.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_NODES, n_node_features, generator=generator)
    edge_features = torch.randn(_EDGES, n_edge_features, generator=generator)
    edge_index = torch.randint(_NODES, (2, _EDGES), generator=generator)
    edge_index[1] %= n_owned  # each edge touches an owned node
    return SectorInputs(x.to(like), edge_features.to(like), edge_index.to(like.device), n_owned)


def own_random_numbers(weight: Tensor) -> AbstractContextManager[None]:
    """Keeps what a model draws within it from changing the numbers that are drawn after it."""
    return torch.random.fork_rng(devices=[weight.device] if weight.is_cuda else [])


def _check_pass(model: nn.Module, sector: SectorInputs, which: str, kind: Kind) -> _Pass:
    """Runs `model` forward and backward, and checks that the result is one of its kind."""
    widths: list[int] = []
    is_forward = True

    def exchange(rows: Tensor) -> Tensor:
        if not is_forward:
            raise _broken(model, IN_BACKWARD)
        if rows.dim() != 2 or len(rows) != sector.n_owned:
            raise _broken(
                model,
                f"gives the exchange rows of shape {list(rows.shape)} for {which} that owns "
                f"{sector.n_owned} nodes; give it the owned rows [n_owned, H] alone",
            )
        widths.append(rows.shape[1])
        return _with_halo(sector, rows)

    with _told_failure(model, which):
        made = model(*sector, exchange)
        is_forward = False
        _check_result(model, made, sector, which, kind)
        return _Pass(widths, _gradients(model, made, which))


@torch.no_grad()
def _check_several(model: LayeredModel[Any], sectors: list[SectorInputs]) -> None:
    """Checks that `model` makes of several sectors of a rank what it makes of each."""
    alone = [model(*sector, partial(_with_halo, sector)) for sector in sectors]
    with _told_failure(model, "several sectors at once"):
        made = model(sectors, lambda owned: list(map(_with_halo, sectors, owned)))
        pairs = zip(made, alone, strict=True)
        if all(torch.allclose(*pair, rtol=_SAME, atol=_SAME) for pair in pairs):
            return
    raise _broken(
        model,
        "gives other results for a sector among several of a rank than for it alone; compute each "
        "from its own rows, without random numbers",
    )


def _with_halo(sector: SectorInputs, owned: Tensor) -> Tensor:
    """Appends halo rows of ones."""
    return torch.cat([owned, owned.new_ones(len(sector.x) - sector.n_owned, owned.shape[1])])


@contextmanager
def _told_failure(model: nn.Module, which: str) -> Iterator[None]:
    """Tells an error of `model` as a breach of its contract."""
    try:
        with no_exit():
            yield
    except ContractError:
        raise
    except Exception as error:
        layer = failing_layer(error)
        within = f" in {layer}" if layer else ""
        said = f"fails for {which}{within} ({type(error).__name__}: {reason(error)})"
        raise _broken(model, said) from error


def _check_result(
    model: nn.Module, made: Tensor, sector: SectorInputs, which: str, kind: Kind
) -> None:
    if not isinstance(made, Tensor):
        raise _broken(model, f"gives a {type(made).__name__} for {which}; return a tensor")
    shape, n_nodes, n_edges = list(made.shape), len(sector.x), len(sector.edge_features)
    allowed = {"edge": ([n_edges], [n_edges, 2]), "hit": ([n_nodes, *shape[1:2]],)}
    if shape not in allowed[kind]:
        wanted = "[E] or [E, 2]" if kind == "edge" else "[N, D]"
        sizes = f"{which} of {n_nodes} nodes and {n_edges} edges"
        raise _broken(model, f"gives a result of shape {shape} for {sizes}; return {wanted}")
    if made.dtype not in (torch.float32, torch.float64):
        raise _broken(model, f"gives a result of {made.dtype} for {which}; return float32 at least")
    if not made.isfinite().all():
        raise _broken(model, f"gives a result that is not finite for {which}; look for divisions")


def _gradients(model: nn.Module, made: Tensor, which: str) -> dict[str, Tensor]:
    """Gives the gradient of each parameter."""
    named = dict(model.named_parameters())
    found: Sequence[Tensor | None] = [None] * len(named)
    if made.requires_grad:
        found = torch.autograd.grad(made.sum(), [*named.values()], allow_unused=True)
    gradients = {}
    for name, gradient in zip(named, found, strict=True):
        if gradient is None:
            raise _broken(
                model,
                f"gives its parameter {name} no gradient for {which}, so engines would wait for "
                f"it; use it in every pass, or leave it out",
            )
        gradients[name] = gradient
    return gradients


def _told(widths: Sequence[int]) -> str:
    return f"{len(widths)} exchanges (of widths {list(widths)})" if widths else "no exchange"


def _broken(model: nn.Module, how: str) -> ContractError:
    return ContractError(f"model {type(model).__name__}: {how} ({_RULES})")
