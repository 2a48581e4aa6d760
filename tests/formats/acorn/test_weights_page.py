"""The commands of docs/acorn.md that import, train on and export a model of acorn's, in order."""

import re
from dataclasses import replace
from pathlib import Path

import torch

from tests.distributed.graphs import write_graphs
from tests.formats.acorn.acorn_model import AcornModel, checkpoint, hits, settings
from tests.programs import CHECKOUT, run_in_one

PAGE = (CHECKOUT / "docs" / "acorn.md").read_text()
WEIGHTS = PAGE[PAGE.index("## Weights") :].partition("\n## ")[0]


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", WEIGHTS, flags=re.DOTALL)
    return str(found)


def test_the_commands_run(tmp_path: Path) -> None:
    """They run on a smaller model, in one process."""
    content = settings(n_graph_iters=2)
    checkpoint(tmp_path / "gnn.ckpt", content, AcornModel.drawn(0, content).state_dict())
    graphs = []
    for graph in (hits(0), hits(1)):
        columns = graph.node_features.float(), graph.edge_features.float()
        graphs.append(replace(graph, node_features=columns[0], edge_features=columns[1]))
    write_graphs(tmp_path / "graphs", graphs)
    size = "hidden: 128, layers: 8, mlp_layers: 3}"
    assert size in block("yaml")
    smaller = block("yaml").replace(size, "hidden: 16, layers: 2, mlp_layers: 2}")
    (tmp_path / "tuned.yaml").write_text(smaller)
    run_in_one(block("sh").splitlines(), tmp_path)
    exported = torch.load(tmp_path / "tuned.ckpt", weights_only=True)
    assert exported["hyper_parameters"]["n_graph_iters"] == 2
