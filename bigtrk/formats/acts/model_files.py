"""A form of a model as a file: ONNX, and TorchScript."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch

from bigtrk.errors import InputError
from bigtrk.formats.acts.forms import OUTPUT, Form

OPSET = 18  # the first in which ScatterElements adds, as ONNX Runtime has it since 1.14
PACKAGES = ("onnx", "onnxscript")


def check_packages() -> None:
    """Checks that what writes ONNX is installed.

    Raises:
        InputError: it is not.
    """
    for name in PACKAGES:
        if find_spec(name) is None:
            raise InputError(f"{name} is not installed; pip install 'bigtrk[onnx]'")


def write_torchscript(form: Form, path: Path) -> None:
    """Writes what `torch::jit::load` reads.

    It is compiled from the code: a trace would make its sums on the device that traced it.
    """
    with _deprecations_ignored():
        torch.jit.script(form.module).save(path)


def write_onnx(form: Form, path: Path) -> None:
    """Writes one ONNX file of standard operators, in which the numbers of nodes and edges are
    dynamic.
    """
    with _deprecations_ignored():
        torch.onnx.export(
            form.module,
            tuple(form.inputs.values()),
            path,
            input_names=list(form.inputs),
            output_names=[OUTPUT],
            opset_version=OPSET,
            dynamic_shapes=form.dynamic,
            dynamo=True,
            external_data=False,
            verbose=False,
        )


@contextmanager
def _deprecations_ignored() -> Iterator[None]:
    """Ignores that torch would rather have other formats than ACTS reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
