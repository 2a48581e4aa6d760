"""A folder of models that ACTS's GNN plugin loads, with a README.md that says how."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


def check_packages() -> None:
    """Checks that what checks ONNX files is installed.

    Raises:
        InputError: it is not.
    """
    if find_spec("onnx") is None:
        raise InputError("onnx is not installed; pip install 'bigtrk[onnx]'")


def write_torchscript(form: Form, path: Path) -> None:
    """Writes what `torch::jit::load` reads.

    It is compiled from the code: a trace would sum on the device that it was traced on.
    """
    with deprecations_ignored():
        torch.jit.script(form.module).save(path)
    _drop_places(path)


def _drop_places(path: Path) -> None:
    """Drops what a TorchScript file tells of the code's place on this machine."""
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

    with deprecations_ignored():
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


@contextmanager
def deprecations_ignored() -> Iterator[None]:
    """Ignores that torch would rather write other formats than ACTS reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


_PLACES = {"r": "R", "phi": "Phi", "z": "Z", "eta": "Eta"}
# What ACTS's NodeFeature calls columns of a hit and, as in the ITk, of its two clusters.
ACTS_NAMES = _PLACES | {
    f"cluster_{name}_{i}": f"Cluster{i}{theirs}" for i in (1, 2) for name, theirs in _PLACES.items()
}
RADIUS = 1.6  # ACTS's own
_BEHIND_AN_EMBEDDING = """\
from pathlib import Path

import acts
from acts.examples.gnn import (
    BoostTrackBuilding,
    NodeFeature,
    TorchEdgeClassifier,
    TorchMetricLearning,
)
from acts.examples.reconstruction import addGnn


def add_track_finding(sequencer: acts.examples.Sequencer, models: Path) -> None:
    \"\"\"Adds the models in folder `models`, behind the algorithms that make space points.\"\"\"
    level = acts.logging.INFO
    addGnn(
        sequencer,
        graphConstructor=TorchMetricLearning(
            level=level,
            modelPath=str(models / "{embedding}.pt"),
            embeddingDim={dimensions},
            rVal={radius},
            knnVal=500,
            selectedFeatures={selected},
        ),
        edgeClassifiers=[{classifiers}],
        trackBuilder=BoostTrackBuilding(level=level),
        nodeFeatures=[{features}],
        featureScales=[{scales}],
    )
"""
_BEHIND_A_MODULE_MAP = """\
from pathlib import Path

import acts
from acts.examples.gnn import (
    CudaTrackBuilding,
    ModuleMapCuda,
    NodeFeature,
    TorchEdgeClassifier,
)
from acts.examples.reconstruction import addGnn


def add_track_finding(
    sequencer: acts.examples.Sequencer, models: Path, module_map: str
) -> None:
    \"\"\"Adds the models in folder `models`, behind the algorithms that make space points and
    clusters; module_map: what the names of its two files begin with.
    \"\"\"
    level = acts.logging.INFO
    addGnn(
        sequencer,
        graphConstructor=ModuleMapCuda(
            level=level,
            moduleMapPath=module_map,
            rScale=1000.0,
            phiScale=3.141592654,
            zScale=1000.0,
            etaScale=1.0,
            gpuDevice=0,
            gpuBlocks=512,
        ),
        edgeClassifiers=[{classifiers}],
        trackBuilder=CudaTrackBuilding(level=level, doJunctionRemoval=True),
        nodeFeatures=[{features}],
        featureScales=[{scales}],
        inputClusters="clusters",
    )
"""
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
    embeddings = [stage for stage in stages if isinstance(stage.model, Embedding)]
    scales = joined_scales(stages)
    common = {
        "classifiers": _classifiers(stages, attributed=not embeddings),
        "features": "".join(f"\n            {_feature(name)}" for name in scales) + "\n        ",
        "scales": ", ".join(map(written_scale, scales.values())),
    }
    if not embeddings:
        return _BEHIND_A_MODULE_MAP.format(**common)
    [first] = embeddings
    assert isinstance(first.model, Embedding)
    return _BEHIND_AN_EMBEDDING.format(
        embedding=first.name,
        dimensions=first.model.config.dimensions,
        radius=repr(RADIUS if first.radius is None else first.radius),
        selected=_selected(first, list(scales)),
        **common,
    )


def _classifiers(stages: Sequence[Stage], attributed: bool) -> str:
    names = list(joined_scales(stages))
    written = [
        _CLASSIFIER.format(
            file=stage.name + (EDGE_ATTR if attributed else ""),
            cut=stage.cut,
            attributed=attributed,
            selected=_selected(stage, names),
        )
        for stage in stages
        if not isinstance(stage.model, Embedding)
    ]
    return "".join(written) + "\n        " if written else ""


def _selected(stage: Stage, names: list[str]) -> list[int]:
    """Lists the columns of a stage among all, as ACTS's classes take them."""
    return [names.index(name) for name in stage.columns.names]


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
    files = [row for stage in stages for row in _files(stage)]
    columns = [_column(name, scale) for name, scale in joined_scales(stages).items()]
    text = TITLE + _TEXT.format(
        files="\n".join(files),
        models="\n".join(map(_model, stages)),
        columns="\n".join(columns),
        opset=OPSET,
        output=OUTPUT,
    )
    cuts = [f"| {stage.name} | {stage.cut!r} |" for stage in stages if stage.cut is not None]
    if cuts:
        text += _EDGES.format(attributes=", ".join(EDGE_SCALES), cuts="\n".join(cuts))
    for stage in stages:
        if isinstance(stage.model, Embedding):
            text += _radius(stage.radius)
    return text + _CONFIGURATION.format(code=configuration(stages))


def _files(stage: Stage) -> list[str]:
    x = f"x [N, {len(stage.columns.names)}]"
    if isinstance(stage.model, Embedding):
        return [f"| {stage.name} | {x} | places [N, {stage.model.config.dimensions}] |"]
    ends = f"{x}, edge_index [2, E]"
    return [
        f"| {stage.name} | {ends} | logits [E, 1] |",
        f"| {stage.name}{EDGE_ATTR} | {ends}, edge_attr [E, {len(EDGE_SCALES)}] | logits [E, 1] |",
    ]


def _model(stage: Stage) -> str:
    edges = [] if isinstance(stage.model, Embedding) else stage.data.edge_features
    read = [", ".join(names) for names in (stage.data.node_features, edges)]
    return f"| {stage.name} | {type(stage.model).__name__} | {read[0]} | {read[1]} |"


def _column(name: str, scale: float) -> str:
    known = ACTS_NAMES.get(name)
    return f"| {name} | {written_scale(scale)} | {f'NodeFeature.{known}' if known else ''} |"


def _radius(radius: float | None) -> str:
    if radius is None:
        return _RADIUS.format(radius=RADIUS, why=", unless you know better: no validation chose it")
    return _RADIUS.format(radius=radius, why="")


_MODEL_FILE = re.compile(r"\w+\.(onnx|pt)")


def check_out(out: Path) -> None:
    """Checks that models can be written to `out`, which holds nothing or an earlier export.

    Raises:
        InputError: what writes ONNX is not installed, or `out` is a link or holds something else.
    """
    check_packages()
    if not unlinked(out).exists():
        return
    if not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder for the models")
    names = sorted(path.name for path in out.iterdir())
    others = [name for name in names if name != README and not _MODEL_FILE.fullmatch(name)]
    if names and not others and not _is_ours(out / README):
        others = names
    if others:
        raise InputError(
            f"{out}: holds something else, such as {others[0]}; name another folder for the models"
        )


def _is_ours(file: Path) -> bool:
    return file.is_file() and file.read_bytes().startswith(TITLE.encode())


def export_run(run: Path, out: Path, trained: Callable[..., Sequence[Stage]]) -> list[str]:
    """Writes the trained model of a run, or those of all stages of a pipeline, to folder `out` as
    ACTS loads them; returns the names of the files. trained: `stages_of` (bigtrk/pipeline).

    Raises:
        InputError: `run` has no model that ACTS can be given, or `out` holds something else.
    """
    check_out(out)
    return export_stages(trained(run, check_exportable), out)


def export_stages(stages: Sequence[Stage], out: Path) -> list[str]:
    """Writes ONNX and TorchScript of each form of each stage's model, and README.md, to folder
    `out`, which holds all of them or is left as it was; returns the names of the files.

    Raises:
        InputError: as check_out.
    """
    check_out(out)
    with whole_folder(out) as folder:
        for stage in stages:
            for form in forms_of(stage):
                write_onnx(form, folder / f"{stage.name}{form.suffix}.onnx")
                write_torchscript(form, folder / f"{stage.name}{form.suffix}.pt")
        (folder / README).write_text(readme(stages))
        return sorted(file.name for file in folder.iterdir())
