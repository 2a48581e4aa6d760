# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Your own model on an event cut in four
#
# Write a network of PyTorch Geometric's layers for one graph on one device. Train it on events that
# are cut into four sectors, each in its own process: losses are the same as on whole events. Run
# `python your_own_model.py`, or make a notebook by `jupytext --to notebook your_own_model.py`. It
# writes to the folder where you run it.

# %%
import json
import subprocess
import sys
from pathlib import Path

import bigtrk

EVENTS, PARTICLES, EPOCHS, SECTORS = 6, 500, 3, 4

# %% [markdown]
# ## The network
#
# It maps features of hits `x [N, F]`, edges `[2, E]` and their features `[E, G]` to embeddings of
# hits. No line of it deals with ranks or sectors. It is in a module, so that settings can name it.

# %%
Path("my_gat.py").write_text('''
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv


class GAT(nn.Module):
    """Attention over the edges of each hit, by their features."""

    def __init__(self, nodes: int, edges: int, width: int = 16) -> None:
        super().__init__()
        self.first = GATv2Conv(nodes, width, edge_dim=edges)
        self.norm = nn.LayerNorm(width)
        self.second = GATv2Conv(width, width, edge_dim=edges)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x = self.norm(self.first(x, edge_index, edge_attr)).relu()
        return x + self.second(x, edge_index, edge_attr)
''')
MODEL = ["model.name=pyg", "model.options.module=my_gat:GAT", "model.options.width=16"]


def run(*command: str) -> str:
    """Runs a command, and shows and returns what it prints."""
    print("$ python -m", *command)
    python = [sys.executable, "-m", *command]
    done = subprocess.run(python, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    return done.stdout


# %% [markdown]
# ## Is it exact?
#
# `bigtrk check-model` runs the network on small graphs, whole and in sectors, and compares all
# results and gradients. If they differ, its last line names the layer and the reason.

# %%
checked = run("bigtrk", "check-model", "pyg", *MODEL[1:], "--json")
assert json.loads(checked)["exact"]

# %% [markdown]
# With BatchNorm, which averages over all nodes of a graph, the network differs in sectors:

# %%
code = Path("my_gat.py").read_text()
Path("my_batch_norm.py").write_text(code.replace("nn.LayerNorm", "nn.BatchNorm1d"))
refused = run("bigtrk", "check-model", "pyg", "model.options.module=my_batch_norm:GAT", "--json")
print(json.loads(refused)["first_difference"])

# %% [markdown]
# ## An event cut in four

# %%
bigtrk.simulate("events", events=EVENTS, particles=PARTICLES)
graphs = bigtrk.build_graphs("events", "graphs")
run("partition", "graphs", "sectors", "--parts", str(SECTORS))

# %% [markdown]
# ## Training
#
# Train on whole events in this process, and on sectors in four other processes, which a launcher
# starts: torchrun here, `deepspeed` or `srun` on a cluster.

# %%
SETTINGS = [*MODEL, "data.validation=1", "optimizer.lr=0.01", f"training.epochs={EPOCHS}"]
whole = bigtrk.train(bigtrk.configure("data.train=graphs", "run.folder=whole", *SETTINGS))
cut = ["data.train=sectors", "run.folder=cut", *SETTINGS]
ranks = f"--nproc-per-node={SECTORS}"
run("torch.distributed.run", "--standalone", ranks, "-m", "bigtrk.train", *cut)

# %% [markdown]
# ## The same losses


# %%
def losses(folder: str | Path) -> list[float]:
    """The loss of each step of a run."""
    lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [record["loss"] for record in map(json.loads, lines) if record["kind"] == "step"]


for step, (one, four) in enumerate(zip(losses(whole), losses("cut"), strict=True), start=1):
    print(f"step {step}: whole {one:.6f}, in sectors {four:.6f}")
    assert abs(four - one) < 1e-4 * one

# %% [markdown]
# The model that was trained in sectors scores whole graphs. To load its run, allow bigtrk to import
# your module.

# %%
model = bigtrk.load_model("cut", code=["my_gat"])
scores, true = model.score(graphs[-1]), graphs[-1].y
print(f"mean score {scores[true].mean():.2f} of true edges, {scores[~true].mean():.2f} of false")
