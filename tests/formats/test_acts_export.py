"""`bigtrk export acts`: of each stage and of a pipeline, with a README.md that says the truth."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bigtrk.api import build_tracks
from bigtrk.formats.acts import export, model_files
from bigtrk.formats.acts.readme import readme
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.pipeline.acts import stages_of
from bigtrk.pipeline.scoring import load_scorer
from bigtrk.records.pipeline import PIPELINE, PipelineRecord
from bigtrk.records.record import write_record
from bigtrk.tracks.builders.merge_tree import MergeTree
from bigtrk.tracks.builders.trees.candidates import FEATURES
from bigtrk.tracks.builders.trees.merge_tree_file import write_merge_tree
from bigtrk.training.run_folder import WEIGHTS
from scripts.physics.as_acts import OPEN, calls, parity
from scripts.physics.stitched_tracks import changed_hits
from tests.formats.acts_stages import MODELS, stage
from tests.programs import run_here, run_in_one
from tests.test_bad_input import one_line
from tests.tracks.builders.events import quality_of

TRAIN = "bigtrk/train.py model.hidden=8 training.epochs=1"
COMMANDS = [
    "bigtrk simulate events --events 3 --particles 60",
    "bigtrk build events graphs",
    "bigtrk build events truth --true-edges",
    f"{TRAIN} data.train=[graphs] run.folder=mine/classifier model.layers=2 training.edge_cut=0.4",
    f"{TRAIN} data.train=[graphs] run.folder=mine/filter model.name=mlp",
    f"{TRAIN} data.train=[truth] run.folder=mine/embedding model.name=embedding "
    "data.node_features=[r,cos_phi,sin_phi,z,eta]",
]
FILES = {
    "embedding": ["embedding.onnx", "embedding.pt"],
    "filter": ["filter.onnx", "filter.pt", "filter_edge_attr.onnx", "filter_edge_attr.pt"],
}
FILES["classifier"] = [name.replace("filter", "classifier") for name in FILES["filter"]]
CUT, RADIUS = 0.0625, 0.375


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Graphs, and a run of each stage, which together are the pipeline `mine`."""
    folder = tmp_path_factory.mktemp("made")
    run_in_one(COMMANDS, folder)
    mine = folder / "mine"
    write_merge_tree(mine / "merge_tree.safetensors", MergeTree(quality_of(FEATURES[0], 1, 0), 0.5))
    digests = {name: sha256((mine / name / WEIGHTS).read_bytes()).hexdigest() for name in FILES}
    write_record(mine / PIPELINE, PipelineRecord(radius=RADIUS, cut=CUT, weights=digests))
    return folder


class Recorder:
    """Stands in for ACTS: what a README.md's Python makes of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.added: dict[str, Any] = {}
        logging, examples = SimpleNamespace(INFO=1), SimpleNamespace(Sequencer=object)
        gnn = SimpleNamespace(NodeFeature=SimpleNamespace(R="R", Phi="Phi", Z="Z", Eta="Eta"))
        names = "TorchMetricLearning TorchEdgeClassifier BoostTrackBuilding ModuleMapCuda"
        for name in [*names.split(), "CudaTrackBuilding"]:
            setattr(gnn, name, lambda name=name, **options: SimpleNamespace(kind=name, **options))
        reconstruction = SimpleNamespace(addGnn=lambda _, **stages: self.added.update(stages))
        modules = {
            "acts": SimpleNamespace(logging=logging, examples=examples),
            "acts.examples": examples,
            "acts.examples.gnn": gnn,
            "acts.examples.reconstruction": reconstruction,
        }
        for name, content in modules.items():
            module = ModuleType(name)
            vars(module).update(vars(content))
            monkeypatch.setitem(sys.modules, name, module)

    def run(self, text: str, *arguments: Any) -> dict[str, Any]:
        [code] = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
        names: dict[str, Any] = {}
        exec(code, names)
        names["add_track_finding"](None, *arguments)
        return self.added


def test_all_stages_of_a_pipeline(
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "for" / "acts"
    command = ["bigtrk", "export", "acts", str(made / "mine"), str(out)]
    status, said, errors = run_here(command, monkeypatch, capsys)
    assert status == 0, errors
    files = ["README.md", *FILES["classifier"], *FILES["embedding"], *FILES["filter"]]
    assert sorted(path.name for path in out.iterdir()) == sorted(files)
    assert "README.md" in said
    folder = GraphFolder(made / "graphs")
    worst = parity(made / "mine", out, map(folder.read, folder.events))
    assert worst.keys() == OPEN.keys()
    assert max(worst.values()) < 1e-5
    added = Recorder(monkeypatch).run((out / "README.md").read_text(), out)
    assert added["nodeFeatures"] == ["R", "Phi", "Z", "Eta"]
    assert added["featureScales"] == [1000.0, 3.141592654, 1000.0, 1.0]
    constructor, (thin, classify) = added["graphConstructor"], added["edgeClassifiers"]
    assert (constructor.embeddingDim, constructor.rVal) == (8, RADIUS)
    assert (thin.cut, classify.cut) == (CUT, 0.4)
    paths = [Path(one.modelPath) for one in (constructor, thin, classify)]
    assert paths == [out / "embedding.pt", out / "filter.pt", out / "classifier.pt"]
    assert not thin.useEdgeFeatures
    assert thin.selectedFeatures == constructor.selectedFeatures == [0, 1, 2, 3]


@pytest.mark.parametrize("name", FILES)
def test_a_run(
    name: str,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The README.md names the cut that the run's validation chose, or that of its settings."""
    run = made / "mine" / name
    command = ["bigtrk", "export", "acts", str(run), str(tmp_path / "out"), "--code", "own_code"]
    assert run_here(command, monkeypatch, capsys)[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["README.md", *FILES[name]]
    text, epochs = (tmp_path / "out" / "README.md").read_text(), (run / "metrics.jsonl").read_text()
    last = json.loads([line for line in epochs.splitlines() if '"epoch"' in line][-1])
    added = Recorder(monkeypatch)
    if name == "embedding":
        constructor = added.run(text, Path("models"))["graphConstructor"]
        assert constructor.rVal == pytest.approx(last["embedding"]["at"]["99"]["radius"], rel=1e-5)
        return
    stages = added.run(text, Path("models"), "map")
    [classify] = stages["edgeClassifiers"]
    assert Path(classify.modelPath) == Path("models") / f"{name}_edge_attr.pt"
    assert classify.useEdgeFeatures
    cut = 0.4 if name == "classifier" else last["validation"]["cuts"]["99.5"]
    assert classify.cut == pytest.approx(cut, rel=1e-5)
    assert stages["graphConstructor"].kind == "ModuleMapCuda"


@pytest.mark.parametrize("builder", ["components", "junction_removal", "walk"])
def test_tracks_of_exported_models(builder: str, made: Path, exported: Path) -> None:
    """Tracks by an exported model's scores are ours but for at most 1e-4 of the hits."""
    graphs, run = GraphFolder(made / "graphs"), made / "mine" / "classifier"
    scorer, [only] = load_scorer(run), stages_of(run)
    hits = dict.fromkeys(OPEN, 0)
    total = 0
    for event in graphs.events:
        graph = graphs.read(event)
        expected = scorer(graph)
        cut = float(expected.quantile(0.5))  # a model of one epoch has seen little
        ours = build_tracks(graph, expected, builder, cut)
        assert len(set(ours)) > 3
        total += len(ours)
        for suffix, tensors, _ in calls(graph, only):
            for kind, open_file in OPEN.items():
                logits = open_file(exported / f"classifier{suffix}.{kind}")(*tensors)
                scores = logits[:, 0].double().sigmoid()
                hits[kind] += changed_hits(ours, build_tracks(graph, scores, builder, cut))
    assert max(hits.values()) <= 1e-4 * 2 * total  # in two forms


@pytest.fixture(scope="module")
def exported(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "out"
    export.export_stages(stages_of(made / "mine" / "classifier"), out)
    return out


def test_an_earlier_export_is_replaced_by_a_whole_one(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shutil.copytree(exported, tmp_path / "out")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = [stage(MODELS["mlp"], "filter")]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(export, "write_torchscript", full)
        with pytest.raises(OSError, match="No space"):
            export.export_stages(other, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    export.export_stages(other, out)
    assert sorted(path.name for path in out.iterdir()) == ["README.md", *FILES["filter"]]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_columns_that_acts_lacks_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand behind the four, with their scales; ACTS refuses lists that do not agree."""
    both = [stage(MODELS["embedding"], "embedding"), stage(MODELS["few features"], "classifier")]
    text = readme(both)
    assert "| cluster_u | 10.0 |  |" in text
    assert "| my_column | 20.0 |  |" in text
    added = Recorder(monkeypatch).run(text, Path("models"))
    assert len(added["nodeFeatures"]) == 4
    assert added["featureScales"][4:] == [10.0, 20.0]
    assert added["graphConstructor"].selectedFeatures == [0, 1, 2, 3]
    assert added["edgeClassifiers"][0].selectedFeatures == [0, 1, 2, 3, 4, 5]


def attention(folder: Path) -> None:
    describe(folder, lambda content: content.update(model={"name": "attention"}))


def other_edges(folder: Path) -> None:
    describe(folder, lambda content: content["data"].update(edge_features=["dr", "curvature"]))


def describe(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "mine" / "classifier" / "config.json"
    content = json.loads(path.read_text())
    change(content["configuration"])
    path.write_text(json.dumps(content))


def a_file(folder: Path) -> None:
    (folder / "out").write_text("")


def another(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "notes.txt").write_text("")


def not_ours(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "model.onnx").write_text("")


def a_link(folder: Path) -> None:
    (folder / "out").symlink_to(folder / "graphs")


def no_filter(folder: Path) -> None:
    (folder / "mine" / "filter" / "model.safetensors").unlink()


def no_package(_: Path) -> None: ...


CASES: list[tuple[str, Callable[[Path], None] | None, str]] = [
    ("absent", None, "absent/config.json: no such file, which a run writes when its training ends"),
    ("graphs", None, "graphs/config.json: no such file"),
    ("mine/classifier", attention, "its model (attention) has no form that ACTS loads; export one"),
    ("mine", attention, "mine/classifier: its model (attention) has no form that ACTS loads"),
    ("mine/classifier", other_edges, "reads the edge feature 'curvature', which ACTS does not"),
    ("mine", no_filter, "mine: its stage filter/model.safetensors is missing"),
    ("mine", a_file, "out: is a file; name a folder for the models"),
    ("mine", another, "out: holds something else, such as notes.txt; name another folder"),
    ("mine", not_ours, "out: holds something else, such as model.onnx; name another folder"),
    ("mine/filter", a_link, "out: is a symbolic link"),
    ("mine", no_package, "onnx is not installed; pip install 'bigtrk[onnx]'"),
]


@pytest.mark.parametrize(("run", "change", "told"), CASES, ids=[told for _, _, told in CASES])
def test_bad_input_is_told_in_one_line(
    run: str,
    change: Callable[[Path], None] | None,
    told: str,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = shutil.copytree(made, tmp_path / "made")
    if change:
        change(folder)
    if change is no_package:
        monkeypatch.setattr(model_files, "find_spec", lambda _: None)
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    command = ["bigtrk", "export", "acts", run, "out"]
    status, said, errors = run_here(command, monkeypatch, capsys)
    assert (status, said) == (2, "")
    assert told in one_line(errors)
    assert sorted(folder.iterdir()) == before
