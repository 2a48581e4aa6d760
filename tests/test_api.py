"""The interface for scripts and notebooks gives what the commands give, and imports late."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike
from safetensors.torch import load_file

import bigtrk
from bigtrk.errors import InputError, StoppedError
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.graphs.storage.sector_folder import SectorFolder
from bigtrk.pipeline.models import load_scorer
from bigtrk.records.run_folder import read_run
from bigtrk.tracks.files import open_tracks
from bigtrk.tracks.names import BuilderName
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.run_folder import WEIGHTS
from partition.partitioners import Method
from tests.distributed.graphs import random_graph
from tests.hostile.reader import same
from tests.programs import run_here, run_in_one

SETTINGS = ["model.hidden=8", "model.layers=1", "training.epochs=1", "data.events=1"]
COMMANDS = [
    "bigtrk simulate events --events 3 --particles 60 --seed 5",
    "bigtrk build events graphs",
    f"bigtrk/train.py data.train=[graphs] {' '.join(SETTINGS)} run.folder=run",
    "bigtrk-partition graphs metis --parts 2 --seed 3 --workers 1",
    "bigtrk-partition graphs wedges --max-edges 150 --method wedges --workers 1",
    *(
        f"bigtrk infer run graphs tracks_{builder.value} --builder {builder.value} --min-hits 4"
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
    code = "import sys, bigtrk; dir(bigtrk); print(' '.join(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {module.partition(".")[0] for module in found.stdout.split()}
    heavy = packages - set(sys.stdlib_module_names) - {"bigtrk", "__main__"}
    # What this environment's own start-up hooks import is there without bigtrk, too.
    bare = [sys.executable, "-c", "import sys; print(' '.join(sys.modules))"]
    without = subprocess.run(bare, capture_output=True, text=True, check=True).stdout.split()
    assert heavy <= {module.partition(".")[0] for module in without}


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
        with pytest.raises(IndexError, match=f"graphs: has 3 graphs here, and none at {index}"):
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
        bigtrk.write_graphs(tmp_path / "others", [some[0], some[0]])


def test_a_run_on_graphs_without_eta_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tables leave out what the graphs do not tell, which is said."""
    monkeypatch.chdir(tmp_path)
    known = random_graph(0, 20, 60)
    foreign = replace(known, node_feature_names=("x0", "x1", "x2", "x3"))
    bigtrk.write_graphs("graphs", [foreign, replace(foreign, name="other")])
    features = "data.node_features=[x0,x1]"
    bigtrk.train(bigtrk.configure("data.train=[graphs]", features, *SETTINGS, "run.folder=run"))
    status, _, said = run_here(["bigtrk", "evaluate", "run", "graphs"], monkeypatch, capsys)
    assert status == 0, said
    assert "graphs store neither eta nor r and z of hits" in said
    tracks = ["bigtrk", "evaluate", "run", "graphs", "--tracks"]
    status, _, said = run_here(tracks, monkeypatch, capsys)
    assert status == 2
    assert "r, phi and z are known; store them in its graph" in said


def test_graphs_whose_tensors_are_one_are_written(tmp_path: Path) -> None:
    """A Data's tensors may be one, if its hits are told by their particles."""
    rows = torch.arange(12.0).reshape(6, 2)
    data = random_graph(0, 6, 5).to_pyg()
    data.update({"x": rows, "edge_attr": rows[1:], "hit_id": data.particle_id})
    data.update({"node_feature_names": ["r", "z"], "edge_feature_names": ["dr", "dz"]})
    graph = bigtrk.EventGraph.from_pyg(data)
    assert same(bigtrk.write_graphs(tmp_path, [graph])[0], graph)


def test_a_training_is_that_of_the_command(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice in one process, as a notebook may, and this process goes on as it was."""
    monkeypatch.chdir(tmp_path)
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


def test_deepspeed_trains_again_in_one_process(made: Path) -> None:
    """It keeps groups of its own, which are gone with those of the training before."""
    train = f"bigtrk/train.py data.train=[graphs] {' '.join(SETTINGS)}"
    engines = ("zero1", "zero3", "zero1")
    commands = [
        f"{train} engine.name=deepspeed engine.ds_config={engine} run.folder=again{i}"
        for i, engine in enumerate(engines)
    ]
    run_in_one([*commands, f"{train} run.folder=after"], made)
    losses = [read_run(made / f"again{i}").epochs[-1].train_loss for i in (0, 2)]
    assert losses[0] == losses[1]


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


def test_a_training_in_another_thread_says_where_to_call_it() -> None:
    said: list[BaseException] = []

    def attempt() -> None:
        try:
            bigtrk.train(bigtrk.Configuration())
        except InputError as error:
            said.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert "main thread" in str(said[0])


def test_code_of_ones_own_is_trusted_where_the_caller_names_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller names it in a configuration; for a run that names it the caller says so again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bigtrk.user_code._allowed", set())
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "code_of_api.py").write_text("def double(nodes):\n    return 2 * nodes['z']\n")
    features = "data.node_features=[r,code_of_api:double]"
    made_of_them = bigtrk.configure(f"data.train=[{made}/graphs]", *SETTINGS, features)
    content = made_of_them.model_dump()
    monkeypatch.setattr("bigtrk.user_code._allowed", set())
    run = bigtrk.train(bigtrk.Configuration.model_validate(content))
    graph = bigtrk.open_graphs(made / "graphs")[0]
    monkeypatch.setattr("bigtrk.user_code._allowed", set())
    with pytest.raises(InputError, match="code_of_api is not installed"):
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
            track_id = bigtrk.build_tracks(graph, scores, builder.value, min_hits=4)
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


@pytest.mark.parametrize("data", ["trackml_subevent", "trackml_event1000"])
def test_real_events(
    made: Path,
    testdata: Path,
    data: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tracks of hits, and sectors, are those that the commands make."""
    commands = [
        f"bigtrk build {testdata / 'data' / data} graphs",
        f"bigtrk infer {made / 'run'} graphs tracks --builder walk --min-hits 3",
        "bigtrk-partition graphs sectors --parts 2 --workers 1",
    ]
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert run_here(command.split(), monkeypatch, capsys)[0] == 0
    graph = bigtrk.build_graph(bigtrk.read_event(testdata / "data" / data))
    (stored,) = bigtrk.open_graphs(tmp_path / "graphs")
    assert same(graph, stored)
    track_id = bigtrk.build_tracks(graph, bigtrk.load_model(made / "run").score(graph), "walk")
    check_tracks(tmp_path / "tracks", graph, track_id)
    sectors = SectorFolder(tmp_path / "sectors")
    for part, sector in enumerate(bigtrk.partition(graph, 2)):
        assert same(sector, sectors.read(graph.name, part, 2))


GRAPH = random_graph(0, 20, 60)
HALVES = torch.full((60,), 0.5, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: bigtrk.build_tracks(GRAPH, HALVES, "walkk"), "builder=walkk.* mean 'walk'"),
        (lambda: bigtrk.build_tracks(GRAPH, HALVES, score_cut=2), "score_cut=2: must be between"),
        (lambda: bigtrk.build_tracks(GRAPH, HALVES, min_hits=0), "min_hits=0: must be 1 or more"),
        (lambda: bigtrk.build_tracks(GRAPH, HALVES[:-1]), "scores must be 60 numbers"),
        (lambda: bigtrk.build_tracks(GRAPH, HALVES * torch.nan), "scores must be 60 numbers"),
        (lambda: bigtrk.partition(GRAPH), "give either parts or max_edges"),
        (lambda: bigtrk.partition(GRAPH, 2, 3), "give either parts or max_edges"),
        (lambda: bigtrk.partition(GRAPH, 0), "parts=0: must be 1 or more"),
        (lambda: bigtrk.partition(GRAPH, 2, method="metiss"), "method=metiss.* mean 'metis'"),
        (lambda: bigtrk.partition(GRAPH, 21), "21 parts asked of a graph with 20 nodes"),
        (lambda: bigtrk.configure("model.hiden=3"), "unknown key 'model.hiden'; did you mean"),
        (lambda: bigtrk.configure("model"), "model: no such file; a setting is written"),
        (lambda: bigtrk.train(bigtrk.configure("data.train=[absent]")), "absent: no such folder"),
        (lambda: bigtrk.load_model("absent"), "absent/config.json: no such file"),
        (lambda: bigtrk.open_graphs("absent"), "absent: no such folder"),
        (lambda: bigtrk.read_event("absent"), "absent: no such file or folder"),
        (lambda: bigtrk.build_graphs("absent", "out"), "absent: no such file or folder"),
        (lambda: bigtrk.simulate("out", particles=0), "particles=0: must be 1 or more"),
        (lambda: bigtrk.simulate("out", events=0), "events=0: must be 1 or more"),
        (lambda: bigtrk.simulate("out", seed=-1), "seed=-1: must be 0 or more"),
        (lambda: simulate_folder(Path("out"), range(2), 0, 0, None), "cannot simulate 0 particles"),
        (lambda: simulate_folder(Path("out"), [], 9, 0, None), "cannot simulate 0 events"),
        (lambda: bigtrk.build_tracks(GRAPH, ["a"] * 60), "scores must be 60 numbers"),
        (lambda: bigtrk.build_tracks(GRAPH, HALVES, min_hits=2.5), "min_hits=2.5.* whole number"),  # type: ignore[arg-type]
        (
            lambda: bigtrk.build_tracks(GRAPH, HALVES, score_cut="0.5"),  # type: ignore[arg-type]
            "score_cut='0.5': must",
        ),
        (lambda: bigtrk.partition(GRAPH, 2.0), "parts=2.0: must be a whole number"),  # type: ignore[arg-type]
        (lambda: bigtrk.partition(GRAPH, 2, seed=2**70), "seed=1180591620717411303424: must be"),
        (lambda: bigtrk.train("x"), "'x': is no Configuration; make one with configure"),  # type: ignore[arg-type]
        (lambda: bigtrk.configure(3), "3: is no string"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_a_value_error_in_one_line(
    call: Callable[[], object],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=complaint) as raised:
        call()
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [HALVES.numpy(), HALVES.tolist(), HALVES.float().numpy()])
def test_scores_may_be_an_array_or_a_list(given: ArrayLike) -> None:
    known = bigtrk.build_tracks(GRAPH, HALVES, score_cut=0.1)
    assert np.array_equal(bigtrk.build_tracks(GRAPH, given, score_cut=0.1), known)


def test_graphs_events_and_sectors_are_compared_as_objects(made: Path) -> None:
    event = bigtrk.read_event(made / "events", "event000000000")
    for read in (GRAPH, bigtrk.partition(GRAPH, 1)[0], event):
        assert read in [deepcopy(read), read]
    graphs = bigtrk.open_graphs(made / "graphs")
    assert graphs[0].name in graphs.names
    assert GRAPH not in graphs
