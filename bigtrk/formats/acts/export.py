"""Writes a folder of models for ACTS's GNN plugin, with a README.md that explains their use."""

import re
import warnings
from collections.abc import Callable, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import torch
from jinja2 import Environment

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
    """Writes the model as TorchScript, which `torch::jit::load` reads.

    It is compiled from the code, since a trace would sum on the device of the trace. Debugging
    records, which contain paths of this machine, are dropped.
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
    """Writes the model as ONNX of standard operators, for any number of nodes and edges.

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
README = "README.md"
TITLE = "# Models for ACTS, exported by bigtrk\n"


def written_scale(scale: float) -> str:
    """Returns a scale as text in the style of ACTS's examples, where pi has ten digits."""
    return repr(float(f"{scale:.10g}"))


def readme(stages: Sequence[Stage]) -> str:
    """Returns the README's text for models exported together, with the Python that adds them."""
    text = files("bigtrk.formats.acts").joinpath("models.md").read_text("utf-8")
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    embedding = next((stage for stage in stages if isinstance(stage.model, Embedding)), None)
    # The columns that ACTS is to make for all stages, and the scale of each.
    scales = {name: scale for stage in stages for name, scale in stage.columns.scales.items()}
    return environment.from_string(text).render(
        title=TITLE,
        stages=stages,
        embedding=embedding,
        edges=[stage for stage in stages if stage is not embedding],
        radius=RADIUS if embedding is None or embedding.radius is None else embedding.radius,
        selected={
            stage.name: [list(scales).index(name) for name in stage.columns.scales]
            for stage in stages
        },
        scales={name: written_scale(scale) for name, scale in scales.items()},
        acts=ACTS_NAMES,
        attributes=list(EDGE_SCALES),
        edge_attr=EDGE_ATTR,
        opset=OPSET,
        output=OUTPUT,
    )


_MODEL_FILE = re.compile(r"\w+\.(onnx|pt)")


def check_out(out: Path) -> None:
    """Raises InputError if onnx is missing, or `out` holds anything but an earlier export."""
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
    """Exports the model of a run, or of each stage of a pipeline, to folder `out` in files that
    ACTS loads; returns the files' names. trained: `stages_of` (bigtrk/pipeline). Raises InputError
    if `run` has no model that ACTS can load, or `out` holds something else.
    """
    return export_stages(trained(run, check_exportable), out)


def export_stages(stages: Sequence[Stage], out: Path) -> list[str]:
    """Writes each form of each stage's model as ONNX and TorchScript, and README.md, to folder
    `out`, all or nothing; returns the files' names.
    """
    check_out(out)
    with whole_folder(out) as folder:
        for stage in stages:
            for form in forms_of(stage):
                write_onnx(form, folder / f"{stage.name}{form.suffix}.onnx")
                write_torchscript(form, folder / f"{stage.name}{form.suffix}.pt")
        (folder / README).write_text(readme(stages))
        return sorted(file.name for file in folder.iterdir())
