# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # First tracks
#
# From simulated collisions to tracks in one process, in a minute or two on a laptop. Run
# `python first_tracks.py`, or make a notebook by `jupytext --to notebook first_tracks.py`. It
# writes to the folder where you run it.

# %%
from importlib.util import find_spec

import numpy as np

import bigtrk
from bigtrk.tracks.matching import Matching, Particles, match_tracks

EVENTS, PARTICLES, EPOCHS = 20, 2000, 10

# %% [markdown]
# ## Events
#
# Simulate helices of charged particles in a detector like that of the TrackML challenge, and 17 %
# noise. Your own TrackML files, in a folder or a zip archive, are read in the same way.

# %%
bigtrk.simulate("events", events=EVENTS, particles=PARTICLES)
event = bigtrk.read_event("events", "event000000000")
print(f"{event.name}: tables {', '.join(event.hits)} of {len(event.hits['x'])} hits")

# %% [markdown]
# ## Graphs
#
# Hits are nodes. An edge joins two hits on neighbouring layers that one particle may have made. `y`
# of an edge is true if one particle made both, one after the other.

# %%
graphs = bigtrk.build_graphs("events", "graphs")
for graph in graphs[:3]:
    share = graph.y.double().mean()
    print(f"{graph.name}: {graph.n_nodes} hits, {graph.n_edges} edges, {share:.0%} of them true")

# %% [markdown]
# ## Training
#
# An interaction network learns which edges are true. Settings are those of `bigtrk train`.
# `data.validation=2` holds the last two events back, to validate on.

# %%
configuration = bigtrk.configure(
    "data.train=graphs",
    "data.validation=2",
    "model.hidden=32",
    "model.layers=4",
    "optimizer.lr=0.003",
    f"training.epochs={EPOCHS}",
)
run = bigtrk.train(configuration)

# %% [markdown]
# ## Scores and tracks
#
# Take an event that was held back. The track builder `walk` follows the edges with the best scores.

# %%
model = bigtrk.load_model(run)
graph = graphs[-1]
scores = model.score(graph).numpy()
true = graph.y.numpy()
print(f"mean score {scores[true].mean():.3f} of true edges, {scores[~true].mean():.3f} of false")

track_id = bigtrk.build_tracks(graph, model.score(graph), builder="walk", hits_min=3)
table = graph.particles
particles = Particles(table.particle_id.numpy(), table.pt.numpy(), table.nhits.numpy())
pid = graph.particle_id.numpy()
# A particle is found if it made half the hits of a track. Only particles above 1 GeV count, since
# the graph's windows keep the edges of these.
metrics = match_tracks(track_id, pid, particles, Matching(pt_min=1, hits_min=3)).metrics
print(
    f"{metrics.n_tracks} tracks; {metrics.efficiency:.1%} of {metrics.n_particles} particles found"
    f", {metrics.fake_rate:.1%} of tracks are of no particle"
)

# %% [markdown]
# ## Plots

# %%
if find_spec("matplotlib") is None:
    print("plots need matplotlib: pip install 'bigtrk[examples]'")
else:
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.5))
    bins = np.linspace(0, 1, 41)
    left.hist([scores[true], scores[~true]], bins, label=["true edges", "false edges"], log=True)
    left.set(xlabel="score", ylabel="edges")
    left.legend()

    names = graph.node_feature_names
    r, phi = (graph.node_features[:, names.index(name)].numpy() for name in ("r", "phi"))
    x, y = r * np.cos(phi), r * np.sin(phi)
    middle.plot(x, y, ".", color="lightgrey", markersize=2)
    hits_of = np.bincount(track_id[track_id >= 0])
    for track in np.argsort(-hits_of)[:40]:
        hits = np.flatnonzero(track_id == track)
        hits = hits[np.argsort(r[hits])]
        middle.plot(x[hits], y[hits], ".-", linewidth=1, markersize=3)
    middle.set(xlabel="x [mm]", ylabel="y [mm]", aspect="equal", title="the 40 longest tracks")

    found = match_tracks(track_id, pid, particles, Matching(hits_min=3))
    pt = particles.pt[found.particle]
    edges = np.geomspace(0.1, 10, 13)
    of_all, _ = np.histogram(pt, edges)
    of_found, _ = np.histogram(pt[found.reconstructed], edges)
    right.stairs(of_found / np.maximum(of_all, 1), edges)
    right.set(xlabel="pT [GeV]", ylabel="efficiency", xscale="log", ylim=(0, 1.05))
    figure.tight_layout()
    figure.savefig("first_tracks.png", dpi=120)
