"""A form of a model as a file: ONNX, and TorchScript."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import torch

from bigtrk.errors import InputError
from bigtrk.formats.acts.forms import OUTPUT, Form

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
