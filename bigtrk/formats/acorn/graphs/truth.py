"""The truth in acorn's graphs: particles are said of true edges, not of hits.

Shapes: N hits, T true edges, P particles.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bigtrk.console import warn_once
from bigtrk.errors import InputError
from bigtrk.events.event import NOISE
from bigtrk.formats.acorn.graphs.columns import AcornColumns
from bigtrk.formats.acorn.graphs.names import PARTICLE, TRUE_EDGES_OF, VERTEX, PtUnit, unit_of
from bigtrk.graphs.coordinates import Floats, Ints
from bigtrk.graphs.event_graph import ParticleTable

_PER_GEV = {PtUnit.MEV: 1000.0, PtUnit.GEV: 1.0}
_TRUE = "true edges"
MOST_HITS = 2**31 - 1


def particles_of_hits(columns: AcornColumns, n_hits: int) -> Tensor | None:
    """Returns the particle of each hit [N] int64, that of a true edge at it, else noise; None where
    the file knows no true edges or not whose they are.

    Raises:
        InputError: true edges or their particles are misshapen, or end outside of the hits.
    """
    edges, particle = columns.tensors.get(TRUE_EDGES_OF), columns.tensors.get(PARTICLE)
    if edges is None or particle is None:
        missing = TRUE_EDGES_OF if edges is None else PARTICLE
        warn_once(missing, f"{columns.file}: has no {missing}, so that no particle is known")
        return None
    if edges.dtype is not torch.int64 or edges.dim() != 2 or len(edges) != 2:
        kind = f"is {edges.dtype} {list(edges.shape)}, not int64 [2, true edges]"
        raise columns.bad(TRUE_EDGES_OF, kind, "make it so")
    if ((edges < 0) | (edges >= n_hits)).any():
        raise columns.bad(TRUE_EDGES_OF, f"ends outside of the {n_hits} hits", "correct it")
    columns.column(PARTICLE, edges.shape[1], _TRUE)
    if particle.is_floating_point():
        raise columns.bad(PARTICLE, f"is {particle.dtype}, which loses ids", "save integers")
    of_hit = np.full(n_hits, NOISE, np.int64)
    # In acorn's order: of a hit that two particles share, the one that it ends at counts.
    for ends in edges.numpy():
        of_hit[ends] = particle.numpy()
    return torch.from_numpy(of_hit)


def particle_table(
    columns: AcornColumns, particle_id: Tensor, pt_unit: PtUnit | None
) -> ParticleTable:
    """Tabulates the particles that have a true edge, ascending by id; what the file does not say is
    NaN, and a particle's hits are counted where it does not.

    particle_id [N]: of hits. pt_unit: that of pT where the reader that made the file is not known.

    Raises:
        InputError: a column is misshapen, or the unit of pT is neither known nor given.
    """
    ids, first = np.unique(columns.tensors[PARTICLE].numpy(), return_index=True)
    ids, first = ids[ids != NOISE].astype(np.int64), first[ids != NOISE]

    def of_particles(name: str) -> Floats:
        column = columns.column(name, columns.tensors[TRUE_EDGES_OF].shape[1], _TRUE)
        if column is None:
            return np.full(len(ids), np.nan)
        values: Floats = column.double().numpy()[first]
        return values

    pt = of_particles("track_particle_pt")
    if "track_particle_pt" in columns.tensors:
        pt = pt / _PER_GEV[_unit(columns, pt_unit)]
    else:
        _say_no_pt(columns)
    vertex = np.stack([of_particles(name) for name in VERTEX], axis=1)
    eta = of_particles("track_particle_eta")
    return ParticleTable(
        particle_id=torch.from_numpy(ids),
        pt=torch.from_numpy(pt).float(),
        eta=torch.from_numpy(eta).float(),
        vertex=torch.from_numpy(vertex).float(),
        nhits=torch.from_numpy(_hits_of(ids, particle_id, of_particles("track_particle_nhits"))),
    )


def reader_of(columns: AcornColumns) -> str:
    """Returns the data reader that made a file, as its config names it; "" where it does not."""
    models = _models(columns.plain.get("config"))
    return next((model for model in models if unit_of(model) is not None), "")


def _models(config: Any) -> Iterator[str]:
    """Yields what stages call their models, in a config's order; DataLoaders nest it in lists."""
    if isinstance(config, dict) and isinstance(config.get("model"), str):
        yield config["model"]
    elif isinstance(config, list):
        for one in config:
            yield from _models(one)


def _unit(columns: AcornColumns, given: PtUnit | None) -> PtUnit:
    unit = given or unit_of(reader_of(columns))
    if unit is None:
        raise InputError(
            f"{columns.file}: config[0]['model'] names no data reader whose unit of pT is known "
            f"(Athena...: MeV, TrackML..., Acts...: GeV); give --pt-unit mev or gev"
        )
    return unit


def _hits_of(ids: Ints, particle_id: Tensor, said: Floats) -> Ints:
    """Returns the hits of each particle [P]: as the file says, else counted among the graph's."""
    of_hit = particle_id.numpy()
    row = np.searchsorted(ids, of_hit[np.isin(of_hit, ids)])
    counted = np.bincount(row, minlength=len(ids))
    return np.where(np.isfinite(said), said.clip(0, MOST_HITS), counted).astype(np.int64)


def _say_no_pt(columns: AcornColumns) -> None:
    warn_once(
        "track_particle_pt",
        f"{columns.file}: has no track_particle_pt (pt), so that no particle passes a cut on it; "
        f"add pt to feature_sets.track_features of acorn's data reading",
    )
