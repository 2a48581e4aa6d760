"""`bigtrk doctor` on installations that lack something."""

import io
import json
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import bigtrk
from bigtrk import doctor
from bigtrk.parallel.settings import EngineSettings

IN_C = ("passes over edges", "sampling", "tracks", "trees of hits")
CODE = ("kernels", "sampling", "tracks", "trees")  # in the order of IN_C


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Examines an installation with all that is needed, changed as told."""
    full = {name.partition(">=")[0]: "9999.1" for name in doctor.REQUIRED}
    full |= {"deepspeed": "0.19.8", "plotly": "7.1.0"}  # which have an upper bound

    def examine(
        versions: dict[str, str | None] | None = None,
        tools: tuple[str, ...] = ("apt-get",),
        accelerator: str = "cpu",
    ) -> dict[str, Any]:
        machine = {"host": "h", "cpu": "c", "cores": 6, "memory_bytes": 2**34}
        installed = {**full, **(versions or {})}
        monkeypatch.setattr(doctor, "version", installed.get)
        monkeypatch.setattr(doctor, "machine", lambda: {**machine, "accelerator": accelerator})
        monkeypatch.setattr(shutil, "which", lambda x: f"/bin/{x}" if x in tools else None)
        monkeypatch.setattr(doctor, "NVIDIA_DRIVER", Path("/nowhere"))
        return doctor.examine()

    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    return examine


def shown(findings: dict[str, Any]) -> str:
    out = io.StringIO()
    doctor.show(findings, Console(file=out, width=100))
    return out.getvalue()


def test_required_packages_are_those_of_the_project() -> None:
    project = Path(bigtrk.__file__).parents[1] / "pyproject.toml"
    declared = tomllib.loads(project.read_text())["project"]
    assert set(doctor.REQUIRED) == set(declared["dependencies"])
    extras = declared["optional-dependencies"]
    own = {
        package
        for name in extras.keys() - {"fuzz", "dev", "docs", "examples"}
        for package in extras[name]
    }
    assert set(doctor.OPTIONAL) == own
    assert EngineSettings().name == doctor.DEFAULT_ENGINE


def test_full_installation_is_ready(here: Callable[..., dict[str, Any]]) -> None:
    findings = here()
    assert findings["ready"]
    assert findings["engines"]["deepspeed"] == {"ready": True, "lacks": []}
    assert findings["commands"] == []
    assert findings["device"]["backend"] == "gloo"
    assert findings["device"]["ds_accelerator"] == "cpu"
    assert findings["threads_per_rank"] == {"1": 6, "2": 3, "4": 1}
    assert "Ready to train" in shown(findings)
    json.dumps(findings, allow_nan=False)


@pytest.mark.parametrize(
    ("used", "installed", "told"),
    [
        (True, "2.1.2", "torch-scatter 2.1.2 for maxima, minima and products on GPUs, else torch"),
        (False, None, "torch alone: torch-scatter is not installed"),
        (False, "2.1.2", "torch alone: torch-scatter 2.1.2 cannot be imported with this torch"),
    ],
)
def test_what_pyg_uses_is_told(
    here: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    used: bool,
    installed: str | None,
    told: str,
) -> None:
    monkeypatch.setattr("torch_geometric.typing.WITH_TORCH_SCATTER", used)
    findings = here({"torch-scatter": installed})
    assert findings["pyg"] == {"scatter": used, "installed": installed}
    assert told in shown(findings)


def test_missing_and_old_packages_come_in_one_command(
    here: Callable[..., dict[str, Any]],
) -> None:
    findings = here({"scipy": None, "torch": "2.9.1+cu128"})
    assert not findings["ready"]
    command = shlex.split(findings["commands"][0])
    assert command == [sys.executable, "-m", "pip", "install", "torch>=2.10", "scipy"]
    text = shown(findings)
    assert "2.9.1+cu128 (needs >=2.10)" in text
    assert "Not ready to train" in text


@pytest.mark.parametrize("installed", ["0.19.4", "0.20.0", "1.0"])
def test_deepspeed_of_another_release_is_named(
    here: Callable[..., dict[str, Any]], installed: str
) -> None:
    findings = here({"deepspeed": installed})
    assert findings["engines"]["deepspeed"] == {"ready": False, "lacks": ["deepspeed"]}
    assert shlex.split(findings["commands"][0])[-1] == "deepspeed>=0.19.5,<0.20"
    assert f"{installed} (needs >=0.19.5,<0.20)" in shown(findings)


def test_passes_are_compiled_and_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "env cc")
    findings = doctor.examine()
    for name, kept in zip(IN_C, CODE, strict=True):
        (path,) = (tmp_path / "cache/bigtrk").glob(f"{kept}-*.so")
        assert findings["compiled"][name] == {"used": True, "path": str(path), "problem": None}
        assert f"{name}: compiled, {path}\n" in shown(findings)
    assert f"{shutil.which('env')} cc" in [tool["found"] for tool in findings["tools"]]


def test_passes_are_plain_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "false")
    findings = doctor.examine()
    for name in IN_C:
        found = findings["compiled"][name]
        assert (found["used"], found["path"]) == (False, None)
        assert f"{shutil.which('false')} made no library" in found["problem"]
    assert "plain, and compiled ones are faster: " in shown(findings)


def test_passes_that_are_not_kept_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    findings = doctor.examine()
    for name in IN_C:
        problem = f"{tmp_path / 'cache'}: is not a folder; remove it"
        assert findings["compiled"][name] == {"used": True, "path": None, "problem": problem}
    assert "compiled by each process for itself: " in shown(findings)


def test_optional_packages_have_commands_of_their_own(
    here: Callable[..., dict[str, Any]],
) -> None:
    findings = here({"wandb": "0.20"})
    commands = " ".join(findings["optional_commands"])
    assert "pip install tensorboard" in commands
    assert "wandb" not in commands
    assert findings["ready"]


def test_torch_that_cannot_be_imported(
    here: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    here()

    def broken() -> dict[str, Any]:
        raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(doctor, "machine", broken)
    findings = doctor.examine()
    assert not findings["ready"]
    assert not findings["engines"]["deepspeed"]["ready"]
    assert "libcudart" in findings["warnings"][0]
    assert "Not ready" in shown(findings)


def test_contradicting_ds_accelerator(
    here: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cuda")
    assert "contradicts" in here()["warnings"][0]
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert here()["warnings"] == []
    assert "contradicts" in here(accelerator="NVIDIA H200")["warnings"][0]


def test_device_hidden_from_torch(
    here: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here()
    monkeypatch.setattr(doctor, "NVIDIA_DRIVER", tmp_path)
    assert "CUDA_VISIBLE_DEVICES" in doctor.examine()["warnings"][0]


@pytest.mark.parametrize("from_index", [True, False])
def test_trackml_of_the_package_index(
    here: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    from_index: bool,
) -> None:
    folder = tmp_path / "trackml-3.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: trackml\nVersion: 3.0\n")
    if not from_index:
        (folder / "direct_url.json").write_text('{"url": "https://example.org/trackml"}')
    monkeypatch.syspath_prepend(str(tmp_path))
    warnings = " ".join(here()["warnings"])
    assert ("pip uninstall trackml" in warnings) == from_index


@pytest.mark.parametrize(
    ("installed", "versions", "enough"),
    [
        ("2.13.0+cpu", ">=2.10", True),
        ("2.9.1", ">=2.10", False),
        ("2025.2.2", ">=2025.1", True),
        ("1.26", ">=2", False),
        ("0.19.8", ">=0.19.5,<0.20", True),
        ("0.20.0", ">=0.19.5,<0.20", False),
        ("0.1", "", True),
    ],
)
def test_versions_compare_by_number(installed: str, versions: str, enough: bool) -> None:
    assert doctor.will_do(installed, versions) == enough


def test_this_installation_can_be_examined() -> None:
    findings = doctor.examine()
    assert findings["machine"]["cores"] >= 1
    assert {"torch", "rich"} <= {p["name"] for p in findings["packages"] if p["found"]}
    shown(findings)
