"""A C++ program loads exported TorchScript through libtorch and calls it as ACTS does."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.cpp_extension import include_paths, library_paths

from bigtrk.formats.acts.export import write_torchscript
from bigtrk.formats.acts.modules import forms_of
from tests.formats.acts.stages import MODELS, hits_and_edges, stage
from tests.oracle.as_acts import calls, difference, ours

SOURCE = Path(__file__).parent / "libtorch" / "run_as_acts.cpp"
# ACTS is compiled in this or a later standard; those of torch's own headers ask for it.
STANDARD = "-std=c++20"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ is installed")
    made = tmp_path_factory.mktemp("program") / "run_as_acts"
    command = [
        compiler,
        STANDARD,
        "-O0",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    ]
    command += [f"-isystem{path}" for path in include_paths()]
    command += [str(SOURCE), "-o", str(made), "-ltorch", "-ltorch_cpu", "-lc10"]
    command += [part for path in library_paths() for part in (f"-L{path}", f"-Wl,-rpath,{path}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return made


def run(program: Path, model: Path, tensors: tuple[Tensor, ...], folder: Path) -> Tensor:
    """Runs a model on ACTS's tensors, of which x gets a column that the model does not select."""
    x, *others = tensors
    wide = torch.cat([x, torch.full((len(x), 1), torch.nan)], dim=1)
    for name, tensor in zip(("x", "edge_index", "edge_attr"), (wide, *others), strict=False):
        (folder / name).write_bytes(tensor.contiguous().numpy().tobytes())
    edges = others[0].shape[1] if others else -1
    attributes = others[1].shape[1] if len(others) > 1 else 0
    sizes = (*wide.shape, x.shape[1], edges, attributes)
    command = [str(program), str(model), str(folder), *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    shape = [int(size) for size in done.stdout.strip().strip("[]").split(",")]
    values = bytearray((folder / "output").read_bytes())
    return (
        torch.frombuffer(values, dtype=torch.float32).reshape(shape)
        if values
        else torch.empty(shape)
    )


@pytest.mark.slow  # libtorch's headers take half a minute
@pytest.mark.parametrize("name", ["interaction", "shared weights", "mlp", "embedding"])
def test_libtorch_gives_what_ours_does(name: str, program: Path, tmp_path: Path) -> None:
    made = stage(MODELS[name])
    for form in forms_of(made):
        write_torchscript(form, tmp_path / f"model{form.suffix}.pt")
    for sizes in ((0, 0), (1, 1), (3, 2), (120, 1000)):
        for suffix, tensors, told in calls(hits_and_edges(*sizes), made):
            found = run(program, tmp_path / f"model{suffix}.pt", tensors, tmp_path)
            assert difference(found, ours(told, made)) < 1e-5, f"{sizes} {suffix}"
