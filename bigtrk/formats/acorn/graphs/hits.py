"""The hits of acorn's graphs: features, ids, weights and modules.

Shapes: N hits.
"""

import numpy as np
import torch
from torch import Tensor

from bigtrk.formats.acorn.graphs.columns import AcornColumns
from bigtrk.formats.acorn.graphs.names import HITS
from bigtrk.formats.acorn.graphs.truth import reader_of
from bigtrk.graphs.features import Floats, cylindrical, eta_of

_READ_HITS = "add it to feature_sets.hit_features of acorn's data reading"
_NO_FEATURES = ("x", "y", "id", "region", "weight")  # of hits: places, numbers and weights
# The largest coordinates: a kilometre keeps features finite in float32, half a turn tells rad.
_MOST = {"r": 1e6, "phi": np.pi + 1e-3, "z": 1e6, "eta": 100.0}
_MODULES = ("volume_id", "layer_id", "module_id")
# Regions of the ITk whose hits have no clusters of their own: strips of both end caps.
_STRIP_END_CAPS = (2, 6)


def hit_features(columns: AcornColumns) -> dict[str, Floats]:
    """Returns the features of hits, each [N]: r, phi, z (mm, rad), eta and what else is known.

    Raises:
        InputError: a column is missing or misshapen, or a hit is nowhere.
    """
    n_hits = columns.needed(f"{HITS}z", _READ_HITS).numel()
    known = {
        name.removeprefix(HITS): _floats(columns, name, n_hits)
        for name, tensor in columns.tensors.items()
        if name.startswith(HITS) and tensor.is_floating_point()
    }
    if known.keys() >= {"x", "y", "z"}:
        known = {**cylindrical(known["x"], known["y"], known["z"]), **known}
    for name in ("z", "r", "phi"):
        if name not in known:
            columns.needed(HITS + name, _READ_HITS)
            raise columns.bad(HITS + name, "holds no floats", "save coordinates in mm and rad")
    known.setdefault("eta", eta_of(known["r"], known["z"]))
    first = {name: known.pop(name) for name in _MOST}
    for name, most in _MOST.items():
        beyond = np.flatnonzero(~(np.abs(first[name]) <= most))
        if len(beyond):
            problem = f"of hit {beyond[0]} is {first[name][beyond[0]]}, not within {most:g}"
            raise columns.bad(HITS + name, problem, "save coordinates in mm and rad, unscaled")
    features = first | {name: known[name] for name in sorted(known) if name not in _NO_FEATURES}
    return _as_acorn_reads(features, columns)


def _as_acorn_reads(features: dict[str, Floats], columns: AcornColumns) -> dict[str, Floats]:
    """Replaces the clusters of hits in strip end caps by the hits, as acorn's Interaction GNN does
    before it reads them.
    """
    region = columns.column(f"{HITS}region", len(features["r"]), "hits")
    if region is None:
        return features
    alike = np.isin(region.numpy(), _STRIP_END_CAPS)
    clusters = {f"cluster_{name}_{i}": name for name in _MOST for i in (1, 2)}
    return {
        name: np.where(alike, features[clusters[name]], values) if name in clusters else values
        for name, values in features.items()
    }


def _floats(columns: AcornColumns, name: str, rows: int) -> Floats:
    column = columns.column(name, rows, "hits")
    assert column is not None
    values: Floats = column.double().numpy()
    return values


def hit_ids(columns: AcornColumns, n_hits: int) -> Tensor | None:
    """Returns the ids of hits [N] int64: of TrackML's its own, which acorn counts from 0."""
    ids = _integers(columns, f"{HITS}id", n_hits)
    from_zero = reader_of(columns).startswith("TrackML")
    return ids + 1 if ids is not None and from_zero else ids


def hit_weights(columns: AcornColumns, n_hits: int) -> Tensor | None:
    """Returns the weights of hits in TrackML's score [N] float64."""
    weights = columns.column(f"{HITS}weight", n_hits, "hits")
    return None if weights is None else weights.double()


def hit_modules(columns: AcornColumns, n_hits: int) -> Tensor | None:
    """Returns volume, layer and module of hits [N, 3] int64, where the file has all of them."""
    found = [_integers(columns, HITS + name, n_hits) for name in _MODULES]
    known = [column for column in found if column is not None]
    return torch.stack(known, dim=1) if len(known) == len(_MODULES) else None


def _integers(columns: AcornColumns, name: str, rows: int) -> Tensor | None:
    column = columns.column(name, rows, "hits")
    if column is None or column.is_floating_point():
        return None
    return column.to(torch.int64)
