"""Bad input of the commands from hits to tracks ends in one line, which names it and the remedy."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.pipeline.training import DEFAULT, train_pipeline
from tests.programs import Run, refusal_of, run_in_one
from tests.test_bad_input import one_line

EMBEDDING = ["model.name=embedding", "model.hidden=8", "training.epochs=1"]
SMALL = ["model.hidden=8", "model.layers=1", "training.epochs=1"]
TRUE = ["bigtrk", "build", "events", "truth", "--true-edges"]
GRAPHS = ["bigtrk", "build", "events", "graphs"]
NEAR = ["bigtrk", "build", "events", "near", "--embedding"]
FILTER = ["bigtrk", "filter", "classifier", "graphs", "out", "--efficiency"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events, graphs of both kinds, and a run of each kind of model."""
    folder = tmp_path_factory.mktemp("made")
    simulate_folder(folder / "events", range(2), 40, seed=1, detectors=None)
    run_in_one(
        [
            " ".join(TRUE),
            " ".join(GRAPHS),
            " ".join(["bigtrk/train.py", "data.train=[truth]", "run.folder=embedding", *EMBEDDING]),
            " ".join(["bigtrk/train.py", "data.train=[graphs]", "run.folder=classifier", *SMALL]),
        ],
        folder,
    )
    return folder


def only_radius(folder: Path) -> None:
    """Takes the record of the embedding's validation away."""
    lines = (folder / "embedding" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "embedding" / "metrics.jsonl").write_text(
        "".join(line for line in lines if '"epoch"' not in line.split(",")[0])
    )


def no_cells(folder: Path) -> None:
    """Leaves an embedding of clusters, and events without cells."""
    described = folder / "embedding" / "config.json"
    content = described.read_text().replace('"eta"', '"cluster_count"')
    described.write_text(content.replace('"cluster_count": 2.0', '"cluster_count": 10.0'))
    for cells in (folder / "events").glob("*-cells.*"):
        cells.unlink()


def pipeline(folder: Path) -> None:
    (folder / "p").mkdir()
    (folder / "p" / "embedding.json").touch()


CASES: list[tuple[list[str], str, Callable[[Path], None] | None]] = [
    ([*NEAR, "classifier"], "classifies edges; name a run with model.name=embedding", None),
    (["bigtrk", "filter", "nothing", "graphs", "out"], "nothing: no such folder; name the", None),
    (["bigtrk", "evaluate", "nothing", "graphs"], "nothing: no such folder; name the f", None),
    (["bigtrk", "filter", "p", "graphs", "out"], "p: is a pipeline, not a run; 'bigtrk", pipeline),
    (["bigtrk", "resume", "p"], "'bigtrk pipeline train EVENTS p' continues it", pipeline),
    (["bigtrk", "watch", "p"], "or name the run of a stage, such as p/classifier", pipeline),
    ([*NEAR, "embedding", "--radius", "0"], "--radius 0 joins no hits; give a larger one", None),
    (
        [*NEAR, "embedding"],
        "event000000000: has no feature 'cluster_count', which the embedding reads; use events",
        no_cells,
    ),
    (
        ["bigtrk", "build", "events", "out", "--windows", "nothing.yaml"],
        "nothing.yaml: is neither a detector with shipped windows (trackml, odd) nor a file; name",
        None,
    ),
    ([*NEAR, "embedding"], "found a radius for --efficiency 0.99; give --radius", only_radius),
    ([*FILTER, "0.5"], "choose one of 0.98, 0.99, 0.995, 0.998, or give --score-cut", None),
    ([*GRAPHS, "--radius", "1"], "need --embedding RUN", None),
    (["bigtrk", "filter", "embedding", "graphs", "out"], "embeds hits; name a run with a m", None),
    (["bigtrk", "evaluate", "embedding", "truth"], "so no edges can be evaluated", None),
    (["bigtrk", "reconstruct", "graphs", "events", "out"], "graphs: holds no pipeline.json", None),
    (["bigtrk", "reconstruct", "x", "events", "events"], "is the folder of the input", None),
    (["bigtrk", "infer", "classifier", "graphs", "classifier/a"], "not lie in classifier,", None),
    (["bigtrk", "filter", "classifier", "graphs", "graphs"], "the graphs to be filtered", None),
    (
        ["bigtrk/train.py", "data.train=[graphs]", *EMBEDDING],
        "has edges that are not true; an embedding trains on graphs of",
        None,
    ),
    (
        ["bigtrk/train.py", "data.train=[truth]", *EMBEDDING, "sampling.method=shadow"],
        "shadow: needs edges, but model.name=embedding reads none; choose wedges or none",
        None,
    ),
]


@pytest.mark.parametrize(("command", "told", "change"), CASES, ids=[told for _, told, _ in CASES])
def test_bad_input_is_named(
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_program: Run,
    command: list[str],
    told: str,
    change: Callable[[Path], None] | None,
) -> None:
    folder = tmp_path / "made"
    shutil.copytree(made, folder)
    if change:
        change(folder)
    monkeypatch.chdir(folder)
    assert told in " ".join(one_line(refusal_of(run_program(command))).split())


def test_a_pipeline_that_another_process_trains_is_left_alone(made: Path, tmp_path: Path) -> None:
    settings = tmp_path / "pipeline.yaml"
    settings.write_text(DEFAULT.read_text().replace("validation: 4", "validation: 1"))
    with FolderLock() as lock:
        lock.take(tmp_path)
        with pytest.raises(InputError, match="is writing there; wait until it has ended"):
            train_pipeline(made / "events", tmp_path, settings, None)
    assert not (tmp_path / "graphs").exists()
