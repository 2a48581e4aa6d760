"""`bigtrk doctor` on installations that lack something."""

import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import bigtrk
from bigtrk import doctor
from bigtrk.console import console

# The beginnings of the names of libraries.
IN_C = dict(zip(doctor.IN_C, ("kernels", "radius", "sampling", "tracks"), strict=True))
Examine = Callable[..., dict[str, Any]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Examines an installation with all that is needed, changed as told."""
    full = {re.split("[<>=]", name)[0]: "9999.1" for name in doctor.required()}
    full |= {"deepspeed": "0.19.8", "plotly": "7.1.0"}  # which have an upper bound

    def examine(**versions: str | None) -> dict[str, Any]:
        machine = {"host": "h", "cpu": "c", "cores": 6, "memory_bytes": 2**34, "accelerator": "cpu"}
        monkeypatch.setattr(doctor, "version", {**full, **versions}.get)
        monkeypatch.setattr(doctor, "machine", lambda: machine)
        monkeypatch.setattr(shutil, "which", lambda x: "/bin/apt-get" if x == "apt-get" else None)
        return doctor.examine()

    return examine


def shown(findings: dict[str, Any]) -> str:
    with pytest.MonkeyPatch.context() as patch, console.capture() as printed:
        patch.setattr(console, "_width", 200)
        doctor.show(findings)
    return printed.get()


def test_packages_are_those_of_the_project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = Path(bigtrk.__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(file.read_text())["project"]
    extras = project["optional-dependencies"]
    users = extras.keys() - {"fuzz", "dev", "docs", "examples", "release"}
    assert set(doctor.OPTIONAL) == {package for name in users for package in extras[name]}
    # The metadata of a checkout may be old; an installed package has nothing else.
    told = ["torch>=1", "wandb; extra == 'w'"]
    monkeypatch.setattr(metadata, "requires", lambda _: told)
    assert doctor.required() == project["dependencies"]
    monkeypatch.setattr(bigtrk, "__file__", str(tmp_path / "bigtrk" / "__init__.py"))
    assert doctor.required() == ["torch>=1"]


def test_full_installation_is_ready(here: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NVIDIA_DRIVER", Path("/nowhere"))
    findings = here(wandb="0.20")
    assert findings["ready"]
    assert (findings["commands"], findings["warnings"]) == ([], [])
    assert findings["device"] == {"accelerator": "cpu", "count": 0, "backend": "gloo"}
    commands = " ".join(findings["optional_commands"])
    assert "pip install tensorboard" in commands
    assert "sudo apt-get install pdsh" in commands
    assert "wandb" not in commands
    assert "Ready to train" in shown(findings)
    json.dumps(findings, allow_nan=False)
    monkeypatch.setattr(doctor, "NVIDIA_DRIVER", Path("/"))
    assert "CUDA_VISIBLE_DEVICES" in here()["warnings"][0]


def test_missing_and_old_packages_come_in_one_command(here: Examine) -> None:
    findings = here(scipy=None, torch="2.9.1+cu128", deepspeed="0.20.0")
    assert not findings["ready"]
    command = shlex.split(findings["commands"][0])
    pip = [sys.executable, "-m", "pip", "install"]
    assert command[:4] == pip
    assert {*command[4:]} == {"torch>=2.10", "deepspeed>=0.19.5,<0.20", "scipy"}
    text = shown(findings)
    assert "2.9.1+cu128 (needs >=2.10)" in text
    assert "0.20.0 (needs >=0.19.5,<0.20)" in text
    assert "Not ready to train" in text


def test_passes_are_compiled_and_where_or_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "env cc")
    findings = doctor.examine()
    text = shown(findings)
    for name, kept in IN_C.items():
        (path,) = (tmp_path / "cache/bigtrk").glob(f"{kept}-*.so")
        assert findings["compiled"][name] == {"used": True, "path": str(path), "problem": None}
        assert f"{name}: compiled, {path}\n" in text
    assert f"{shutil.which('env')} cc" in [tool["found"] for tool in findings["tools"]]
    assert findings["machine"]["cores"] >= 1
    assert {"torch", "rich"} <= {p["name"] for p in findings["packages"] if p["found"]}
    monkeypatch.setenv("CC", "false")
    findings = doctor.examine()
    for found in findings["compiled"].values():
        assert (found["used"], found["path"]) == (False, None)
        assert f"{shutil.which('false')} cannot compile the C code" in found["problem"]
    assert "not compiled, which is slower: " in shown(findings)


def test_torch_that_cannot_be_imported(here: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    here()

    def broken() -> dict[str, Any]:
        raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(doctor, "machine", broken)
    findings = doctor.examine()
    assert not findings["ready"]
    [said] = findings["warnings"]
    assert "libcudart" in said
    assert "pip install --force-reinstall torch" in said
    assert "Not ready" in shown(findings)


@pytest.mark.parametrize(
    ("installed", "requirement", "enough"),
    [
        ("2.13.0+cpu", "torch>=2.10", True),
        ("2.9.1", "torch>=2.10", False),
        ("0.19.8", "deepspeed<0.20,>=0.19.5", True),
        ("0.20.0", "deepspeed<0.20,>=0.19.5", False),
        ("0.1", "rich", True),
    ],
)
def test_versions_compare_by_number(installed: str, requirement: str, enough: bool) -> None:
    assert doctor.will_do(installed, requirement) == enough
