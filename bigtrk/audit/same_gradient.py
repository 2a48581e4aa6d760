"""The exact gradient again: in other precisions, and of sectors that exchange their halos."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from bigtrk.audit.draws import Exact
from bigtrk.audit.gradients import Gradient, exact_gradient, gradient_of
from bigtrk.audit.names import Way
from bigtrk.audit.subject import Subject
from bigtrk.console import follow
from bigtrk.errors import InputError
from bigtrk.proof.lockstep import SectorError, run_sectors
from bigtrk.proof.outcome import replica
from bigtrk.proof.prove import in_float64
from bigtrk.records.audit import SameGradient
from bigtrk.training.data.share import Share

# What rounding makes of a gradient, relative to its norm. One that is small beside what edges add
# up to, as after some training, is rounded more: by 2e-6 after 16 steps in float32. So sectors may
# in float32 be so many times as far from the whole graph as this is from float64.
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-6}
_ROUNDINGS = 4
_TINY = 1e-300


class _Known(nn.Module):
    """Gives the results that are known already, in order, whatever it is asked."""

    def __init__(self, results: Sequence[Tensor]) -> None:
        super().__init__()
        self._results = iter(results)

    def forward(self, *_: object) -> Tensor:
        return next(self._results)


def same_gradients(
    ways: Sequence[Way], subject: Subject, model: nn.Module, exact: Exact, shown: str
) -> tuple[SameGradient, ...]:
    """Compares what should be the same gradient, for those of `ways` that are asked for; exact:
    that in float32.

    Raises:
        InputError: a loss is not finite, or a model cannot go on in sectors or in float64.
    """
    if not {Way.PRECISION, Way.EXCHANGE} & set(ways):
        return ()
    double = deepcopy(model).double()
    single = [one.values for one in exact.gradients]
    reference = _of_events(partial(_in_float64, subject, double), subject, f"{shown}: float64")
    fp32 = _compared("fp32", "float64", single, reference, exact)
    found = []
    if Way.PRECISION in ways:
        found.append(fp32)
        if subject.has_bf16:
            rounded = subject.in_bf16()
            narrow = rounded.model(model.state_dict())
            made = _of_events(partial(exact_gradient, rounded, narrow), subject, f"{shown}: bf16")
            found.append(_compared("bf16", "float64", made, reference, exact))
    if Way.EXCHANGE in ways:
        of_fp32 = max(ROUNDING[torch.float32], _ROUNDINGS * fp32.worst)
        sides = (
            ("float64", double, reference, ROUNDING[torch.float64]),
            ("fp32", model, single, of_fp32),
        )
        for kind, weights, whole, limit in sides:
            make = partial(exchanged_gradient, subject, weights)
            made = _of_events(make, subject, f"{shown}: sectors in {kind}")
            found.append(_compared(f"exchange in {kind}", kind, made, whole, exact, limit))
    return tuple(found)


def exchanged_gradient(subject: Subject, model: nn.Module, event: int) -> Gradient:
    """Computes the gradient of an event in the sectors that it is stored in, which exchange halos,
    in the type of the model's weights.

    Raises:
        InputError: the model cannot go on in sectors.
    """
    source = subject.sources[event]
    sectors = source.read_several(range(source.parts), source.parts)
    shares = [
        _as(model, subject.maker.alone(event, sector), n_owned=sector.n_owned) for sector in sectors
    ]
    passes = [
        partial(replica(model), one.x, one.edge_features, one.edge_index, one.n_owned)
        for [one] in (share.batches for share in shares)
    ]
    try:
        with _default_type(model):
            made = run_sectors(passes, sectors)
            return gradient_of(subject, model, event, shares, _Known(made))
    except SectorError as error:
        raise InputError(
            f"{source.name}: the run's model {error}; 'bigtrk check-model' says where"
        ) from error


def _in_float64(subject: Subject, model: nn.Module, event: int) -> Gradient:
    whole = _as(model, subject.maker.whole(event, subject.sources))
    with _default_type(model):
        return gradient_of(subject, model, event, [whole])


def _default_type(model: nn.Module) -> AbstractContextManager[None]:
    """Lets tensors for which a model names no type be of the type of its weights."""
    return in_float64() if _type(model) == torch.float64 else nullcontext()


def _type(model: nn.Module) -> torch.dtype:
    return next(model.parameters()).dtype


def _as(model: nn.Module, share: Share, n_owned: int | None = None) -> Share:
    """Gives the only sector of a share in the type of the model's weights, with so many of its
    nodes owned.
    """
    [batch] = share.batches
    x, edge_features = batch.x.to(_type(model)), batch.edge_features.to(_type(model))
    owned = batch.n_owned if n_owned is None else n_owned
    return Share([replace(batch, x=x, edge_features=edge_features, n_owned=owned)], share.exchange)


def _of_events(make: Callable[[int], Gradient], subject: Subject, shown: str) -> list[Tensor]:
    n_events = len(subject.sources)
    return [make(event).values for event in follow(range(n_events), n_events, shown)]


def _compared(
    way: str,
    reference: str,
    made: Sequence[Tensor],
    expected: Sequence[Tensor],
    exact: Exact,
    limit: float | None = None,
) -> SameGradient:
    found, wanted = (torch.stack(list(one)).double() for one in (made, expected))
    apart = found - wanted
    known = wanted.any(1)  # an event may have no gradient, if not all have none
    cosines = cosine_similarity(found[known], wanted[known], eps=_TINY)
    return SameGradient(
        way=way,
        reference=reference,
        difference=_relative(apart.mean(0), wanted.mean(0)),
        worst=float((apart.norm(dim=1) / wanted.norm(dim=1))[known].max()),
        cosine=float(cosines.min()),
        limit=limit,
        parts={
            name: _relative(apart.mean(0)[values], wanted.mean(0)[values])
            for name, values in exact.parts.items()
        },
    )


def _relative(apart: Tensor, wanted: Tensor) -> float:
    return float(apart.norm() / wanted.norm().clamp_min(_TINY))
