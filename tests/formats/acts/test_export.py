"""`bigtrk export acts`: of each stage and of a pipeline, with a README.md that says the truth."""

import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bigtrk.api import build_tracks
from bigtrk.formats.acorn.model_files import import_model
from bigtrk.formats.acts import modules
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.pipeline.models import load_scorer
from bigtrk.pipeline.trained import stages_of
from tests.formats.acorn.acorn_model import AcornModel, checkpoint, settings
from tests.formats.acts.runs import CUT, FILES, RADIUS
from tests.formats.acts.stages import MODELS, stage
from tests.oracle.as_acts import OPEN, changed_tracks, parity
from tests.programs import Run, output_of

# As gnn4itk_example.py of ACTS orders the features of the ITk.
ITK = [f"{of}{place}" for of in ("", "Cluster1", "Cluster2") for place in ("R", "Phi", "Z", "Eta")]


class Recorder:
    """Stands in for ACTS: what a README.md's Python makes of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.added: dict[str, Any] = {}
        logging, examples = SimpleNamespace(INFO=1), SimpleNamespace(Sequencer=object)
        gnn = SimpleNamespace(NodeFeature=SimpleNamespace(**{name: name for name in ITK}))
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
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_program: Run
) -> None:
    out = tmp_path / "for" / "acts"
    command = ["bigtrk", "export", "acts", str(made / "mine"), str(out)]
    said = output_of(run_program(command))
    files = ["README.md", *FILES["classifier"], *FILES["embedding"], *FILES["filter"]]
    assert sorted(path.name for path in out.iterdir()) == sorted(files)
    assert "README.md" in said
    folder = GraphFolder(made / "graphs")
    worst = parity(stages_of(made / "mine"), out, map(folder.read, folder.events))
    assert worst.keys() == OPEN.keys()
    assert max(worst.values()) < 1e-5
    text = (out / "README.md").read_text()
    assert "| embedding | Embedding | r, cos_phi, sin_phi, z, eta |  |" in text
    assert "| filter | EdgeMLP | r, phi, z, eta | dr, dphi, dz, deta, phislope, rphislope |" in text
    added = Recorder(monkeypatch).run(text, out)
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
    name: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_program: Run
) -> None:
    """The README.md names the cut that the run's validation chose, or that of its settings."""
    run = made / "mine" / name
    command = ["bigtrk", "export", "acts", str(run), str(tmp_path / "out"), "--code", "own_code"]
    assert run_program(command)[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["README.md", *FILES[name]]
    text, epochs = (tmp_path / "out" / "README.md").read_text(), (run / "metrics.jsonl").read_text()
    last = json.loads([line for line in epochs.splitlines() if '"epoch"' in line][-1])
    added = Recorder(monkeypatch)
    if name == "embedding":
        constructor = added.run(text, Path("models"))["graphConstructor"]
        assert constructor.rVal == last["embedding"]["at"]["99"]["radius"]
        return
    stages = added.run(text, Path("models"), "map")
    [classify] = stages["edgeClassifiers"]
    assert Path(classify.modelPath) == Path("models") / f"{name}_edge_attr.pt"
    assert classify.useEdgeFeatures
    cut = 0.4 if name == "classifier" else last["validation"]["cuts"]["99.5"]
    assert classify.cut == cut
    assert stages["graphConstructor"].kind == "ModuleMapCuda"


@pytest.mark.parametrize("builder", ["components", "walk"])
def test_tracks_of_exported_models(builder: str, made: Path, exported: Path) -> None:
    """Tracks by an exported model's scores are ours except for at most 1e-4 of the hits."""
    folder, run = GraphFolder(made / "graphs"), made / "mine" / "classifier"
    graphs = [folder.read(event) for event in folder.events]
    scores = load_scorer(run)(graphs[0])
    cut = float(scores.quantile(0.5))  # a model of one epoch has seen little
    assert build_tracks(graphs[0], scores, builder, cut).max() > 3
    changed = changed_tracks(run, exported, graphs, builder, cut)
    assert sorted(changed) == ["onnx", "onnx_edge_attr", "pt", "pt_edge_attr"]
    assert max(changed.values()) <= 1e-4


@pytest.fixture(scope="module")
def exported(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "out"
    modules.export_stages(stages_of(made / "mine" / "classifier"), out)
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
        context.setattr(modules, "write_torchscript", full)
        with pytest.raises(OSError, match="No space"):
            modules.export_stages(other, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    modules.export_stages(other, out)
    assert sorted(path.name for path in out.iterdir()) == ["README.md", *FILES["filter"]]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_clusters_of_the_itk_are_features_of_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of acorn's, imported, gets from ACTS all that it reads, in its units."""
    content = settings()
    state = AcornModel.drawn(0, content).state_dict()
    import_model(checkpoint(tmp_path / "a.ckpt", content, state), tmp_path / "run")
    text = modules.readme(stages_of(tmp_path / "run"))
    assert "| cluster_eta_2 | 1.0 | NodeFeature.Cluster2Eta |" in text
    added = Recorder(monkeypatch).run(text, Path("models"), "maps/itk")
    assert added["nodeFeatures"] == ITK
    assert added["featureScales"] == [1000.0, 3.141592654, 1000.0, 1.0] * 3
    assert added["edgeClassifiers"][0].selectedFeatures == list(range(12))
