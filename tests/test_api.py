"""The interface for scripts and notebooks gives what the commands give, and imports late."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import bigtrk
from bigtrk.errors import InputError, StoppedError
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.graphs.storage.sector_folder import SectorFolder
from bigtrk.pipeline.models import load_scorer
from bigtrk.tracks.files import open_tracks
from bigtrk.tracks.names import BuilderName
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.run_folder import WEIGHTS
from partition.partitioners import Method
from tests.distributed.graphs import random_graph
from tests.hostile.reader import same
from tests.mounts import mounted
from tests.programs import run_in_one

SETTINGS = ["model.hidden=8", "model.layers=1", "training.epochs=1", "data.events=1"]
COMMANDS = [
    "bigtrk simulate events --events 3 --particles 60 --seed 5",
    "bigtrk build events graphs",
    f"bigtrk/train.py data.train=[graphs] {' '.join(SETTINGS)} run.folder=run",
    "bigtrk-partition graphs metis --parts 2 --seed 3 --workers 1",
    "bigtrk-partition graphs wedges --max-edges 150 --method wedges --workers 1",
    *(
        f"bigtrk infer run graphs tracks_{builder.value} --builder {builder.value} --hits-min 4"
        for builder in BuilderName
    ),
    "bigtrk infer run graphs tracks_cut --score-cut 0.52",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the commands have run."""
    folder = tmp_path_factory.mktemp("made")
    run_in_one(COMMANDS, folder)
    return folder


def test_importing_bigtrk_imports_nothing_heavy() -> None:
    # What this environment's own start-up hooks import is there without bigtrk, too.
    code = "import sys; before = {*sys.modules}; import bigtrk; dir(bigtrk)\n"
    code += "print(*({*sys.modules} - before))"
    found = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    packages = {module.partition(".")[0] for module in found}
    assert packages - set(sys.stdlib_module_names) == {"bigtrk"}


def test_every_name_is_there_and_documented() -> None:
    assert set(bigtrk.__all__) <= set(dir(bigtrk))
    for name in bigtrk.__all__:
        assert getattr(bigtrk, name).__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'traim'"):
        bigtrk.traim  # noqa: B018  # type: ignore[attr-defined]


def test_events_and_graphs_are_those_of_the_commands(made: Path, tmp_path: Path) -> None:
    bigtrk.simulate(tmp_path / "events", events=3, particles=60, seed=5)
    built = bigtrk.build_graphs(str(tmp_path / "events"), tmp_path / "graphs")
    known = GraphFolder(made / "graphs")
    assert list(built.names) == known.events
    for graph in built:
        assert same(graph, known.read(graph.name))
        event = bigtrk.read_event(made / "events", graph.name)
        assert same(bigtrk.build_graph(event), graph)
    assert bigtrk.read_event(made / "events", built.names[0], with_truth=False).truth is None


def test_a_folder_is_a_lazy_sequence(made: Path) -> None:
    graphs = bigtrk.open_graphs(made / "graphs")
    assert len(graphs) == 3
    assert [graph.name for graph in graphs] == list(graphs.names)
    assert same(graphs[-1], graphs[2])
    assert graphs[1:].names == graphs.names[1:]
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"graphs: has 3 graphs, and none at {index}"):
            graphs[index]
    read: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphFolder, "read", lambda _, name: read.append(name))
        graphs[::2][1]
    assert read == [graphs.names[2]]


def test_graphs_from_anywhere_are_written(tmp_path: Path) -> None:
    some = [random_graph(seed, 20, 60) for seed in range(3)]
    known = [*some[:2], bigtrk.EventGraph.from_pyg(some[2].to_pyg())]
    folder = bigtrk.write_graphs(tmp_path / "graphs", known)
    assert all(same(one, other) for one, other in zip(folder, some, strict=True))
    first = (tmp_path / "graphs" / f"{some[0].name}.safetensors").stat().st_mtime_ns
    assert bigtrk.write_graphs(tmp_path / "graphs", known[:1]).names == (some[0].name,)
    assert (tmp_path / "graphs" / f"{some[0].name}.safetensors").stat().st_mtime_ns == first
    with pytest.raises(InputError, match="two graphs are called"):
        bigtrk.write_graphs(tmp_path / "others", [some[0], some[1], some[0]])
    assert not (tmp_path / "others").exists()
    original = GraphFolder.read
    with mock.patch.object(GraphFolder, "read", autospec=True, side_effect=original) as read:
        bigtrk.write_graphs(tmp_path / "copies", bigtrk.open_graphs(tmp_path / "graphs"))
    assert read.call_count == 1


@pytest.mark.usefixtures("workdir")
def test_a_training_is_that_of_the_command(made: Path) -> None:
    """Twice in one process, as a notebook may, and this process goes on as it was."""
    configuration = bigtrk.configure(f"data.train=[{made}/graphs]", *SETTINGS)
    before = dict(os.environ), [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    runs = [bigtrk.train(configuration) for _ in range(2)]
    assert before == (
        dict(os.environ),
        [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)],
    )
    assert runs == [Path("runs/0001"), Path("runs/0002")]
    known = load_file(made / "run" / WEIGHTS)
    for run in runs:
        assert same(load_file(run / WEIGHTS), known)
    by_hand = bigtrk.Configuration.model_validate(configuration.model_dump())
    assert by_hand == configuration


def test_an_interrupted_training_leaves_the_process_to_others(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = EventSource.read_several

    def interrupted(self: EventSource, numbers: Sequence[int], parts: int) -> list[bigtrk.Sector]:
        os.kill(os.getpid(), signal.SIGINT)
        return read(self, numbers, parts)

    monkeypatch.setattr(EventSource, "read_several", interrupted)
    folder = f"run.folder={tmp_path / 'run'}"
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(StoppedError, match=r"SIGINT.*stopped after step 1, saved"):
        bigtrk.train(bigtrk.configure(f"data.train=[{made}/graphs]", *SETTINGS, folder))
    assert signal.getsignal(signal.SIGINT) is before


def test_code_of_ones_own_is_trusted_where_the_caller_names_it(
    made: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller names it in a configuration; for a run that names it the caller says so again."""
    monkeypatch.setattr("bigtrk.user_code._allowed", set())
    monkeypatch.setattr(sys, "path", [*sys.path])
    (workdir / "code_of_api.py").write_text("def double(nodes):\n    return 2 * nodes['z']\n")
    features = "data.node_features=[r,code_of_api:double]"
    made_of_them = bigtrk.configure(f"data.train=[{made}/graphs]", *SETTINGS, features)
    content = made_of_them.model_dump()
    monkeypatch.setattr("bigtrk.user_code._allowed", set())
    run = bigtrk.train(bigtrk.Configuration.model_validate(content))
    graph = bigtrk.open_graphs(made / "graphs")[0]
    monkeypatch.setattr("bigtrk.user_code._allowed", set())
    with pytest.raises(InputError, match="code_of_api belongs to no installed package"):
        bigtrk.load_model(run)
    for code in (["code_of_api"], "code_of_api"):
        monkeypatch.setattr("bigtrk.user_code._allowed", set())
        assert bigtrk.load_model(run, code=code).score(graph).shape == (graph.n_edges,)


def test_scores_and_tracks_are_those_of_the_commands(made: Path) -> None:
    model, graphs = bigtrk.load_model(made / "run"), bigtrk.open_graphs(made / "graphs")
    for graph in graphs:
        scores = model.score(graph)
        assert (scores.dtype, scores.shape) == (torch.float64, (graph.n_edges,))
        assert torch.equal(scores, load_scorer(made / "run")(graph))
        for builder in BuilderName:
            track_id = bigtrk.build_tracks(graph, scores, builder.value, hits_min=4)
            check_tracks(made / f"tracks_{builder.value}", graph, track_id)
        check_tracks(made / "tracks_cut", graph, bigtrk.build_tracks(graph, scores, score_cut=0.52))


def check_tracks(folder: Path, graph: bigtrk.EventGraph, track_id: np.ndarray) -> None:
    """The hits of `folder`'s tracks are these."""
    assert graph.hit_id is not None
    found = open_tracks(folder).read(int(graph.name.removeprefix("event")))
    listed = dict(zip(found.hit_id.tolist(), found.track_id.tolist(), strict=True))
    assert [listed.get(hit, -1) for hit in graph.hit_id.tolist()] == track_id.tolist()


def test_sectors_are_those_of_the_command(made: Path) -> None:
    metis, wedges = SectorFolder(made / "metis"), SectorFolder(made / "wedges")
    for graph in bigtrk.open_graphs(made / "graphs"):
        sectors = bigtrk.partition(graph, 2, seed=3)
        stored = [metis.read(graph.name, part, 2) for part in range(2)]
        assert all(same(one, other) for one, other in zip(sectors, stored, strict=True))
        sectors = bigtrk.partition(graph, max_edges=150, method=Method.WEDGES.value)
        parts = wedges.parts(graph.name)
        stored = [wedges.read(graph.name, part, parts) for part in range(parts)]
        assert all(same(one, other) for one, other in zip(sectors, stored, strict=True))


GRAPH = random_graph(0, 20, 60)
HALVES = torch.full((60,), 0.5, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: bigtrk.build_tracks(GRAPH, HALVES, "walkk"), "builder=walkk.* mean 'walk'"),
        (lambda: bigtrk.build_tracks(GRAPH, HALVES, score_cut=2), "score_cut=2: must be between"),
        (lambda: bigtrk.build_tracks(GRAPH, HALVES, hits_min=0), "hits_min=0: must be 1 or more"),
        (lambda: bigtrk.build_tracks(GRAPH, HALVES[:-1]), "scores must be 60 numbers"),
        (lambda: bigtrk.partition(GRAPH), "parts and max_edges both set"),
        (lambda: bigtrk.partition(GRAPH, 0), "parts=0: must be 1 or more"),
        (lambda: bigtrk.partition(GRAPH, 2, method="metiss"), "method=metiss.* mean 'metis'"),
        (lambda: bigtrk.configure("model"), "model: no such configuration file; a "),
        (lambda: bigtrk.train(bigtrk.configure("data.train=[absent]")), "absent: no such folder"),
        (lambda: bigtrk.load_model("absent"), "absent: no such folder; name the folder"),
        (lambda: bigtrk.build_graphs("absent", "out"), "absent: no such file or folder"),
        (lambda: bigtrk.simulate("out", events=0), "events=0: must be 1 or more"),
        (lambda: bigtrk.build_tracks(GRAPH, ["a"] * 60), "scores must be 60 numbers"),
        (lambda: bigtrk.partition(GRAPH, 2.0), "parts=2.0: must be an integer"),  # type: ignore[arg-type]
        (lambda: bigtrk.train("x"), "'x': is not a Configuration; make one with configure"),  # type: ignore[arg-type]
        (lambda: bigtrk.configure(3), "3 is not text; give text"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_a_value_error_in_one_line(
    call: Callable[[], object], complaint: str, workdir: Path
) -> None:
    with pytest.raises(ValueError, match=complaint) as raised:
        call()
    assert "\n" not in str(raised.value)
    assert not list(workdir.iterdir())


def test_an_error_of_the_disk_is_a_value_error_in_one_line(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "ro") as disk:
        for write in (bigtrk.simulate, partial(bigtrk.write_graphs, graphs=[GRAPH])):
            with pytest.raises(ValueError, match=f"{disk}.*: Read-only file system; name another"):
                write(disk)
