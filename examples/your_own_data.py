# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Your own data
#
# Train on graphs of your own detector, given as PyTorch Geometric's `Data`, with columns and a
# feature that bigtrk does not know. Run `python your_own_data.py`, or make a notebook by
# `jupytext --to notebook your_own_data.py`. It writes to the folder where you run it.

# %%
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

import bigtrk

EVENTS, PARTICLES, EPOCHS = 16, 60, 12

# %% [markdown]
# ## A detector
#
# Eight cylinders measure where and when a particle passes. Particles fly straight from the origin,
# at different speeds. In your own script, read your files instead.
#
# To make tracks, bigtrk needs the columns `r` [mm], `phi` [rad] and `z` [mm] of hits. Name other
# columns as you like, such as `time` [ns].

# %%
RADII = np.linspace(100.0, 800.0, 8)
LIGHT = 299.8  # mm/ns


def make_hits(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The hits of one event, column by column; particles are numbered from 1."""
    direction = rng.uniform(-np.pi, np.pi, PARTICLES)
    slope, speed = rng.normal(0, 1, PARTICLES), LIGHT * rng.uniform(0.5, 1, PARTICLES)
    particle, layer = (grid.ravel() for grid in np.indices((PARTICLES, len(RADII))))
    r = RADII[layer]
    z = r * slope[particle] + rng.normal(0, 1, len(r))
    time = np.hypot(r, z) / speed[particle] + rng.normal(0, 0.05, len(r))
    phi = direction[particle] + rng.normal(0, 0.002, len(r))
    phi = (phi + np.pi) % (2 * np.pi) - np.pi
    return {"r": r, "phi": phi, "z": z, "time": time, "layer": layer, "particle": particle + 1}


# %% [markdown]
# ## Graphs
#
# An edge joins hits on neighbouring layers that are close in phi, from the inner to the outer one.
# Its label says whether one particle made both.


# %%
def make_data(name: str, hits: dict[str, np.ndarray]) -> Data:
    """The graph of an event."""
    dphi = hits["phi"][None, :] - hits["phi"][:, None]
    dphi = (dphi + np.pi) % (2 * np.pi) - np.pi
    neighbours = hits["layer"][None, :] == hits["layer"][:, None] + 1
    inner, outer = np.nonzero(neighbours & (np.abs(dphi) < 0.1))
    nodes = [hits[column] for column in ("r", "phi", "z", "time")]
    edges = [dphi[inner, outer], *(hits[c][outer] - hits[c][inner] for c in ("r", "z", "time"))]
    return Data(
        x=torch.from_numpy(np.stack(nodes, axis=1)).float(),
        edge_index=torch.from_numpy(np.stack([inner, outer])),
        edge_attr=torch.from_numpy(np.stack(edges, axis=1)).float(),
        y=torch.from_numpy(hits["particle"][inner] == hits["particle"][outer]),
        hit_id=torch.arange(len(hits["r"])),
        particle_id=torch.from_numpy(hits["particle"]),
        name=name,
        node_feature_names=["r", "phi", "z", "time"],
        edge_feature_names=["dphi", "dr", "dz", "dt"],
    )


rng = np.random.default_rng(0)
events = [make_data(f"event{number:09d}", make_hits(rng)) for number in range(EVENTS)]
print(events[0])

# %% [markdown]
# Write them to a folder of graphs, for the training.

# %%
graphs = bigtrk.write_graphs("graphs", [bigtrk.EventGraph.from_pyg(data) for data in events])
share = graphs[0].y.double().mean()
print(
    f"{len(graphs)} graphs; {graphs[0].name}: {graphs[0].n_edges} edges, {share:.0%} of them true"
)

# %% [markdown]
# If the graphs are in files of `torch.save`, as the next cell writes them, a command does the same:
#
# ```sh
# bigtrk build --from pyg FOLDER graphs
# ```

# %%
Path("data").mkdir(exist_ok=True)
for data in events:
    torch.save(data, f"data/{data.name}.pt")

# %% [markdown]
# ## A feature of your own
#
# A feature of edges is a function in a module of yours. It gets the columns of edges and of their
# two hits, and returns a number for each edge: here the time that a particle takes per millimetre.

# %%
Path("my_features.py").write_text('''
def slowness(edges, inner, outer):
    """The time that an edge takes for its length [ns/mm]."""
    return edges["dt"] / (edges["dr"] ** 2 + edges["dz"] ** 2) ** 0.5
''')

# %% [markdown]
# ## Training
#
# bigtrk scales your columns and features by their mean and deviation in the training events.

# %%
configuration = bigtrk.configure(
    "data.train=graphs",
    "data.validation=2",
    "data.node_features=r,cos_phi,sin_phi,z,time",
    "data.edge_features=dphi,dr,dz,dt,my_features:slowness",
    "model.hidden=32",
    "model.layers=3",
    "optimizer.lr=0.005",
    f"training.epochs={EPOCHS}",
)
run = bigtrk.train(configuration)

# %% [markdown]
# ## Tracks
#
# The run needs your module. To load the run, allow bigtrk to import it.

# %%
model = bigtrk.load_model(run, code=["my_features"])
graph = graphs[-1]
track_id = bigtrk.build_tracks(graph, model.score(graph), builder="walk")
particle_id = graph.particle_id.numpy()
whole = sum(
    len(set(track_id[particle_id == particle])) == 1
    and np.sum(track_id == track_id[particle_id == particle][0]) == len(RADII)
    for particle in range(1, PARTICLES + 1)
)
print(f"{track_id.max() + 1} tracks; {whole} of {PARTICLES} particles have all their hits in one")

# %% [markdown]
# Convert a graph back to PyTorch Geometric, with the scores.

# %%
data = graph.to_pyg()
data.score = model.score(graph)
print(data)
