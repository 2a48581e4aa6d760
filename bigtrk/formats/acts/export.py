"""A folder of models that ACTS's GNN plugin loads, with a README.md that says how."""

import re
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import torch

from bigtrk.disk.files import unlinked, whole_folder
from bigtrk.errors import InputError
from bigtrk.formats.acts.modules import (
    EDGE_ATTR,
    EDGE_SCALES,
    OUTPUT,
    Form,
    Stage,
    check_exportable,
    forms_of,
)
from bigtrk.models.mlps import Embedding

OPSET = 17  # the first that has LayerNormalization, which ONNX Runtime computes since 1.12


def write_torchscript(form: Form, path: Path) -> None:
    """Writes what `torch::jit::load` reads.

    It is compiled from the code: a trace would sum on the device that it was traced on. Debugging
    records, which tell of the code's place on this machine, are dropped.
    """
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        torch.jit.script(form.module).save(path)
    with ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with ZipFile(path, "w") as archive:
        for name, content in members.items():
            if not name.endswith(".debug_pkl"):
                archive.writestr(ZipInfo(name), content)


def write_onnx(form: Form, path: Path) -> None:
    """Writes a file of standard operators, in which the numbers of nodes and edges are dynamic.

    torch's other exporter gives the same logits, but takes 2 to 10 s for a model instead of 0.2 s.
    """
    import onnx

    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        torch.onnx.export(
            form.module,
            tuple(form.inputs.values()),
            path,
            input_names=list(form.inputs),
            output_names=[OUTPUT],
            dynamic_axes=form.dynamic,
            opset_version=OPSET,
            dynamo=False,
        )
    onnx.checker.check_model(path, full_check=True)


_PLACES = {"r": "R", "phi": "Phi", "z": "Z", "eta": "Eta"}
# Names in ACTS's NodeFeature of the columns of a hit and, as in the ITk, of its two clusters.
ACTS_NAMES = _PLACES | {
    f"cluster_{name}_{i}": f"Cluster{i}{theirs}" for i in (1, 2) for name, theirs in _PLACES.items()
}
RADIUS = 1.6  # ACTS's own
_SCRIPT = """\
from pathlib import Path

import acts
from acts.examples.gnn import {imports}
from acts.examples.reconstruction import addGnn


def add_track_finding(sequencer: acts.examples.Sequencer, models: Path{argument}) -> None:
    \"\"\"Adds the models in folder `models`, behind the algorithms that make space
    points{behind}.\"\"\"
    level = acts.logging.INFO
    addGnn(
        sequencer,
        graphConstructor={constructor},
        edgeClassifiers=[{classifiers}],
        trackBuilder={builder},
        nodeFeatures=[{features}
        ],
        featureScales=[{scales}],{clusters}
    )
"""
_EMBEDDING = {
    "imports": "BoostTrackBuilding, NodeFeature, TorchEdgeClassifier, TorchMetricLearning",
    "argument": "",
    "behind": "",
    "constructor": """TorchMetricLearning(
            level=level,
            modelPath=str(models / "{embedding}.pt"),
            embeddingDim={dimensions},
            rVal={radius},
            knnVal=500,
            selectedFeatures={selected},
        )""",
    "builder": "BoostTrackBuilding(level=level)",
    "clusters": "",
}
_MODULE_MAP = {
    "imports": "CudaTrackBuilding, ModuleMapCuda, NodeFeature, TorchEdgeClassifier",
    "argument": ", module_map: str",
    "behind": " and clusters; module_map: what the names of its two files begin with",
    "constructor": """ModuleMapCuda(
            level=level,
            moduleMapPath=module_map,
            rScale=1000.0,
            phiScale=3.141592654,
            zScale=1000.0,
            etaScale=1.0,
            gpuDevice=0,
            gpuBlocks=512,
        )""",
    "builder": "CudaTrackBuilding(level=level, doJunctionRemoval=True)",
    "clusters": '\n        inputClusters="clusters",',
}
_CLASSIFIER = """
            TorchEdgeClassifier(
                level=level,
                modelPath=str(models / "{file}.pt"),
                cut={cut!r},
                nChunks=1,
                undirected=False,
                useEdgeFeatures={attributed},
                selectedFeatures={selected},
            ),"""


def joined_scales(stages: Sequence[Stage]) -> dict[str, float]:
    """Lists the columns that ACTS is to make for all stages, and the scale of each."""
    return {name: scale for stage in stages for name, scale in stage.columns.scales.items()}


def written_scale(scale: float) -> str:
    """Writes a scale as ACTS's examples do, in which pi has ten digits."""
    return repr(float(f"{scale:.10g}"))


def configuration(stages: Sequence[Stage]) -> str:
    """Writes the Python that adds these stages, an embedding first where there is one."""
    scales = joined_scales(stages)
    names = list(scales)
    parts, attributed, classifiers = dict(_MODULE_MAP), True, []
    for stage in stages:
        selected = [names.index(name) for name in stage.columns.names]
        if isinstance(stage.model, Embedding):
            parts, attributed = dict(_EMBEDDING), False
            parts["constructor"] = parts["constructor"].format(
                embedding=stage.name,
                dimensions=stage.model.config.dimensions,
                radius=repr(RADIUS if stage.radius is None else stage.radius),
                selected=selected,
            )
            continue
        file = stage.name + (EDGE_ATTR if attributed else "")
        classifiers.append(
            _CLASSIFIER.format(file=file, cut=stage.cut, attributed=attributed, selected=selected)
        )
    return _SCRIPT.format(
        classifiers="".join(classifiers) + ("\n        " if classifiers else ""),
        features="".join(f"\n            {_feature(name)}" for name in names),
        scales=", ".join(map(written_scale, scales.values())),
        **parts,
    )


def _feature(name: str) -> str:
    acts = ACTS_NAMES.get(name)
    return f"NodeFeature.{acts}," if acts else f"# the feature of ACTS that is {name} here"


README = "README.md"
TITLE = "# Models for ACTS, exported by bigtrk\n"
_TEXT = """
| file | reads | gives |
|---|---|---|
{files}

Each is there as `.onnx` (opset {opset}, standard operators, one output called `{output}`) and as
`.pt` (TorchScript). x, edge_attr and what is given are float32, edge_index is int64. N and E differ
from call to call and may be 0. Models of edges give logits: ACTS applies the sigmoid itself.

| file | model | features of hits | features of edges |
|---|---|---|---|
{models}

The models make these features of x, and bring them to the scales that they were trained with.

## Columns

x has these columns, in this order, each divided by its scale:

| column | scale | of ACTS |
|---|---|---|
{columns}
"""
_EDGES = """
edge_attr has {attributes}, computed from the scaled columns, as
ACTS's `ModuleMapCuda` does: phi wraps at 1, and the two slopes are 0 where dr is 0. Models that
read it take edges as they come, from the inner hit to the outer one. Those that do not, for graphs
of `TorchMetricLearning`, order the two hits of an edge by their distance from the origin, and
compute the same themselves.

## Cuts

| file | keep edges with a score above |
|---|---|
{cuts}
"""
_RADIUS = """
Hits are joined within {radius!r} of each other in the embedding{why}.
"""
_CONFIGURATION = """
## Configuration

```python
{code}```

All edges of an event go through a model at once (`nChunks=1`), and in one direction.
"""


def readme(stages: Sequence[Stage]) -> str:
    """Writes the text for models that are exported together."""
    files, models, cuts, radius = [], [], [], ""
    for stage in stages:
        name, ends = stage.name, f"x [N, {len(stage.columns.names)}]"
        edges = stage.data.edge_features
        if isinstance(stage.model, Embedding):
            files.append(f"| {name} | {ends} | places [N, {stage.model.config.dimensions}] |")
            why = ", unless you know better: no validation chose it" if stage.radius is None else ""
            radius = _RADIUS.format(radius=stage.radius or RADIUS, why=why)
            edges = []
        else:
            ends, gives = f"{ends}, edge_index [2, E]", "logits [E, 1] |"
            files.append(f"| {name} | {ends} | {gives}")
            attributes = f"edge_attr [E, {len(EDGE_SCALES)}]"
            files.append(f"| {name}{EDGE_ATTR} | {ends}, {attributes} | {gives}")
            cuts.append(f"| {name} | {stage.cut!r} |")
        read = " | ".join(", ".join(names) for names in (stage.data.node_features, edges))
        models.append(f"| {name} | {type(stage.model).__name__} | {read} |")
    columns = [
        f"| {name} | {written_scale(scale)} | "
        f"{f'NodeFeature.{ACTS_NAMES[name]}' if name in ACTS_NAMES else ''} |"
        for name, scale in joined_scales(stages).items()
    ]
    text = TITLE + _TEXT.format(
        files="\n".join(files),
        models="\n".join(models),
        columns="\n".join(columns),
        opset=OPSET,
        output=OUTPUT,
    )
    if cuts:
        text += _EDGES.format(attributes=", ".join(EDGE_SCALES), cuts="\n".join(cuts))
    return text + radius + _CONFIGURATION.format(code=configuration(stages))


_MODEL_FILE = re.compile(r"\w+\.(onnx|pt)")


def check_out(out: Path) -> None:
    """Checks that ONNX can be written to `out`, which holds nothing or an earlier export."""
    if find_spec("onnx") is None:
        raise InputError("onnx is not installed; pip install 'bigtrk[onnx]'")
    if not unlinked(out).exists():
        return
    if not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder for the models")
    names = sorted(path.name for path in out.iterdir())
    others = [name for name in names if name != README and not _MODEL_FILE.fullmatch(name)]
    ours = (out / README).is_file() and (out / README).read_bytes().startswith(TITLE.encode())
    others = others or ([] if ours else names)
    if others:
        raise InputError(f"{out}: holds other files, such as {others[0]}; name another folder")


def export_run(run: Path, out: Path, trained: Callable[..., Sequence[Stage]]) -> list[str]:
    """Writes the trained model of a run, or those of all stages of a pipeline, to folder `out` as
    ACTS loads them; returns the names of the files. trained: `stages_of` (bigtrk/pipeline).

    Raises:
        InputError: `run` has no model that ACTS can be given, or `out` holds something else.
    """
    return export_stages(trained(run, check_exportable), out)


def export_stages(stages: Sequence[Stage], out: Path) -> list[str]:
    """Writes ONNX and TorchScript of each form of each stage's model, and README.md, to folder
    `out`, which holds all of them or is left as it was; returns the names of the files.
    """
    check_out(out)
    with whole_folder(out) as folder:
        for stage in stages:
            for form in forms_of(stage):
                write_onnx(form, folder / f"{stage.name}{form.suffix}.onnx")
                write_torchscript(form, folder / f"{stage.name}{form.suffix}.pt")
        (folder / README).write_text(readme(stages))
        return sorted(file.name for file in folder.iterdir())
