"""`bigtrk export acts-graphs`: the edges and scores of a trained model, read again by csv."""

import csv
from pathlib import Path

import numpy as np
import pytest

from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.builders.build_folder import build_folder
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.pipeline.models import load_scorer
from tests.programs import Run, output_of


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of graphs of two events."""
    folder = tmp_path_factory.mktemp("graphs")
    simulate_folder(folder / "events", range(2), 30, 0, None)
    build_folder(folder / "events", folder / "graphs")
    return folder / "graphs"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("workdir")
def test_the_scores_of_a_run(graphs: Path, run_program: Run) -> None:
    settings = "model.name=mlp model.hidden=4 training.epochs=1 data.validation=0"
    train = f"bigtrk/train.py data.train=[{graphs}] {settings}"
    assert run_program(train.split())[0] == 0
    command = f"bigtrk export acts-graphs {graphs} out --run runs/0001 --code own_code"
    assert output_of(run_program(command.split())) == "2 files in out\n"
    scorer, folder = load_scorer(Path("runs/0001")), GraphFolder(graphs)
    for name in folder.events:
        graph, found = folder.read(name), rows(Path(f"out/{name}-gnn-graph.csv"))
        assert list(found[0]) == ["edge0", "edge1", "weight"]
        assert graph.hit_id is not None
        ids = graph.hit_id.tolist()
        edges = [(ids[a], ids[b]) for a, b in graph.edge_index.T.tolist()]
        assert [(int(row["edge0"]), int(row["edge1"])) for row in found] == edges
        scores = np.array([float(row["weight"]) for row in found], np.float32)
        np.testing.assert_array_equal(scores, scorer(graph).numpy().astype(np.float32))
        assert len({row["weight"] for row in found}) > 1
