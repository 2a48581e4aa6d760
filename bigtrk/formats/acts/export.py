"""A folder of models that ACTS's GNN plugin loads, with a README.md that says how."""

import re
from collections.abc import Sequence
from pathlib import Path

from bigtrk.disk.files import unlinked, whole_folder
from bigtrk.errors import InputError
from bigtrk.formats.acts.forms import forms_of
from bigtrk.formats.acts.model_files import check_packages, write_onnx, write_torchscript
from bigtrk.formats.acts.readme import README, TITLE, readme
from bigtrk.formats.acts.stage import Stage

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
