"""Graphs as acorn writes them, made from the list of its columns without the product's code."""

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch, Data

# Newer name -> older one, of what these graphs hold.
OLDER = {
    **{f"hit_{name}": name for name in ("x", "z", "r", "phi", "eta", "region", "module_id")},
    "hit_cluster_r_1": "cluster_r_1",
    "edge_y": "y",
    "edge_dr": "dr",
    "track_to_edge_map": "truth_map",
    "track_particle_id": "particle_id",
    "track_particle_pt": "pt",
    "track_particle_nhits": "nhits",
    "track_particle_radius": "radius",
    "track_particle_eta": "eta_particle",
}
PARTICLES, LAYERS, NOISE = 9, 6, 11
IDS = 2**53 + 2 * np.arange(1, PARTICLES + 1) + 1  # float64 would lose them


def columns(seed: int = 0, reader: str = "TrackMLReader") -> dict[str, Any]:
    """An event by the newer names: particles cross barrel layers, some edges point inwards."""
    rng = np.random.default_rng(seed)
    radius = np.tile(np.array([32.0, 72.0, 116.0, 172.0, 260.0, 360.0]), PARTICLES)
    phi0, slope = rng.uniform(-3, 3, PARTICLES), rng.uniform(-2, 2, PARTICLES)
    particle = np.repeat(np.arange(PARTICLES), LAYERS)
    noise = rng.uniform(30, 400, NOISE)
    r = np.concatenate([radius, noise])
    phi = np.concatenate([phi0[particle] + 1e-4 * radius, rng.uniform(-3, 3, NOISE)])
    z = np.concatenate([slope[particle] * radius, rng.uniform(-500, 500, NOISE)])
    shuffled = rng.permutation(len(r))  # row -> place
    r, phi, z = r[shuffled], phi[shuffled], z[shuffled]
    row_of = np.argsort(shuffled)
    chain = np.arange(PARTICLES * LAYERS).reshape(PARTICLES, LAYERS)
    true = np.stack([row_of[chain[:, :-1].ravel()], row_of[chain[:, 1:].ravel()]])
    owner = np.repeat(np.arange(PARTICLES), LAYERS - 1)
    pairs = {tuple(pair) for pair in true.T.tolist()} - {
        tuple(true[:, 3].tolist())
    }  # one not built
    while len(pairs) < 150:
        a, b = rng.integers(len(r), size=2).tolist()
        if a != b and (b, a) not in pairs:
            pairs.add((a, b))
    edges = np.array(sorted(pairs))[rng.permutation(len(pairs))].T
    built = {tuple(pair): number for number, pair in enumerate(edges.T.tolist())}
    to_edge = np.array([built.get(tuple(pair), -1) for pair in true.T.tolist()])
    y = np.isin(np.arange(edges.shape[1]), to_edge)
    scale = 1000.0 if reader.startswith("Athena") else 1.0
    return {
        "hit_id": torch.arange(len(r)),
        "hit_x": torch.from_numpy(r * np.cos(phi)),
        "hit_y": torch.from_numpy(r * np.sin(phi)),
        "hit_z": torch.from_numpy(z),
        "hit_r": torch.from_numpy(r),
        "hit_phi": torch.from_numpy(phi),
        "hit_eta": torch.from_numpy(np.arcsinh(z / r)),
        "hit_region": torch.from_numpy(rng.integers(1, 7, len(r))),
        "hit_module_id": torch.from_numpy(rng.integers(2**40, size=len(r))),
        "hit_cluster_r_1": torch.from_numpy(r + 0.1),
        "edge_index": torch.from_numpy(edges.copy()),
        "edge_y": torch.from_numpy(y),
        "edge_dr": torch.full((edges.shape[1],), 7.0),
        "track_edges": torch.from_numpy(true),
        "track_to_edge_map": torch.from_numpy(to_edge),
        "track_particle_id": torch.from_numpy(IDS[owner]),
        "track_particle_pt": torch.from_numpy((0.5 + 0.25 * owner) * scale),
        "track_particle_nhits": torch.full((len(owner),), LAYERS),
        "track_particle_radius": torch.full((len(owner),), 0.5),
        "track_particle_eta": torch.from_numpy(np.arcsinh(slope)[owner]),
        "config": [{"model": reader, "region_labels": {1: {"hardware": "PIXEL"}}, "cut": 0.1}],
        "event_id": f"{seed:09d}",
    }


def in_older_names(newer: dict[str, Any]) -> dict[str, Any]:
    """The same event as older versions write it: without y of hits, whose name edges have."""
    return {OLDER.get(name, name): one for name, one in newer.items() if name != "hit_y"}


def write(path: Path, content: dict[str, Any], batch: bool = False) -> Path:
    """Writes an event to a .pyg or .pyg.gz file, as a Data or as the DataBatch of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = Data.from_dict(content)
    data.num_nodes = len(content["hit_id"])
    packed = io.BytesIO()
    torch.save(Batch.from_data_list([data]) if batch else data, packed)
    compressed = path.name.endswith(".gz")
    path.write_bytes(gzip.compress(packed.getvalue(), 1) if compressed else packed.getvalue())
    return path


def load(path: Path) -> dict[str, Any]:
    """The columns of a file that this project wrote, as acorn loads it."""
    content: dict[str, Any] = torch.load(path, weights_only=False).to_dict()
    return content
