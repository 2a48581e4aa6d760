"""`bigtrk doctor`: shows what is installed, what a run would use, and how to get what is missing.

Packages are looked up by their metadata, since importing DeepSpeed takes seconds and prints. Only
rich is needed to run this: people call it when an installation is broken.
"""

import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from rich.table import Table

import bigtrk
from bigtrk.console import console, say
from bigtrk.errors import InputError, number_of
from bigtrk.machine import machine, memory_bytes, open_cores, slow_cards, version
from bigtrk.native_code import build, compiler

# What the packages of an extra are for.
OPTIONAL = {
    "mlflow": "run.loggers=mlflow",
    "nvidia-ml-py": "power and energy of NVIDIA devices",
    "onnx": "bigtrk export acts",
    "pyacts": "bigtrk baseline, fit, and simulate --with acts",
    "optuna": "bigtrk search",
    "tensorboard": "run.loggers=tensorboard",
    "wandb": "run.loggers=wandb",
}
IN_C = {
    "passes over edges": "bigtrk.models.edges.native",
    "radius graphs": "bigtrk.graphs.builders.radius",
    "sampling": "bigtrk.sampling.engines",
    "tracks": "bigtrk.tracks.builders.builder",
}
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


def required() -> list[str]:
    """Lists the requirements of bigtrk, such as "torch>=2.10".

    In a checkout it reads pyproject.toml: installed metadata are as old as the installation.
    """
    file = Path(bigtrk.__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(file.read_text()).get("project", {}) if file.is_file() else {}
    if project.get("name") == "bigtrk":
        return list(project["dependencies"])
    try:
        return [one for one in metadata.requires("bigtrk") or () if ";" not in one]
    except metadata.PackageNotFoundError:
        raise InputError("bigtrk is not installed; run 'pip install -e .' in its source") from None


def examine() -> dict[str, Any]:
    """Returns all findings, JSON-able; `ready`: the engines can train here.

    Of each package or tool, `found` is its version or path, and `remedy` how to get it.
    """
    packages = [_package(name, "", True) for name in required()]
    packages += [_package(name, purpose, False) for name, purpose in OPTIONAL.items()]
    tools = list(_tools())
    missing = [each["requirement"] for each in packages if each["required"] and each["remedy"]]
    problem, compiled, warnings = None, {}, []
    device: dict[str, Any] = {"accelerator": None, "count": 0, "backend": None}
    try:
        import torch

        host = machine()
        count = torch.cuda.device_count() if host["accelerator"] != "cpu" else 0
        backend = "nccl" if count else "gloo"
        device = {"accelerator": host["accelerator"], "count": count, "backend": backend}
        compiled, warnings = _compiled(), [slow] if (slow := slow_cards()) else []
        if host["accelerator"] == "cpu" and NVIDIA_DRIVER.exists():
            warnings.append(
                "an NVIDIA driver is loaded, but torch sees no device: CUDA_VISIBLE_DEVICES hides "
                "it, the driver is older than torch's CUDA, or torch "
                f"{version('torch')} is without CUDA"
            )
    except (ImportError, OSError) as error:
        host = {"cores": open_cores(), "memory_bytes": memory_bytes(), "accelerator": None}
        remedy = _pip("--force-reinstall", "torch")
        problem = f"torch cannot be imported ({error}); install it again: {remedy}"
    return {
        "ready": not missing and problem is None,
        "packages": packages,
        "tools": tools,
        "machine": host,
        "device": device,
        "compiled": compiled,
        "warnings": [problem] if problem else warnings,
        "commands": [_pip(*missing)] if missing else [],
        "optional_commands": [
            part["remedy"]
            for part in (*packages, *tools)
            if part["remedy"] and not part["required"]
        ],
    }


def will_do(installed: str, requirement: str) -> bool:
    """True if the version `installed` ("2.13.0+cpu") meets `requirement` ("torch<3,>=2")."""
    return all(
        (_release(installed) < _release(bound)) == (sign == "<")
        for sign, bound in re.findall("(<|>=)([^,]+)", requirement)
    )


def _release(text: str) -> tuple[int, ...]:
    match = re.search(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _package(requirement: str, purpose: str, required: bool) -> dict[str, Any]:
    name = re.split("[<>=]", requirement)[0]
    found = version(name)
    remedy = None if found and will_do(found, requirement) else _pip(requirement)
    finding = _finding(name, purpose, found, remedy)
    return {**finding, "required": required, "requirement": requirement}


def _finding(name: str, purpose: str, found: str | None, remedy: str | None) -> dict[str, Any]:
    return {"name": name, "purpose": purpose, "found": found, "remedy": remedy, "required": False}


def _pip(*requirements: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])


def _tools() -> Iterator[dict[str, Any]]:
    cc = None
    with suppress(OSError):
        cc = shlex.join(compiler())
    get = "load the module of {}, or sudo apt-get install {} (dnf install {})"
    purpose = "fast graphs, passes over edges and sampling on CPUs"
    yield _finding("C compiler", purpose, cc, None if cc else get.format("gcc", "g++", "gcc-c++"))
    yield _finding("srun", "several nodes under SLURM", shutil.which("srun"), None)
    pdsh, purpose = shutil.which("pdsh"), "several nodes with the deepspeed launcher"
    yield _finding("pdsh", purpose, pdsh, None if pdsh else get.format("pdsh", "pdsh", "pdsh"))


def _compiled() -> dict[str, dict[str, Any]]:
    """Compiles the C libraries; returns, by name, whether each is used, its path, any problem."""
    found = {}
    with suppress(ImportError):  # of a package that is missing, which is said elsewhere
        for name, module in IN_C.items():
            made = build(*import_module(module).CODE)
            path, used = made.path and str(made.path), made.library is not None
            found[name] = {"used": used, "path": path, "problem": made.problem}
    return found


def show(findings: dict[str, Any]) -> None:
    """Prints the findings of `examine`."""
    host, device = findings["machine"], findings["device"]
    count = f"{device['count']} x " if device["count"] > 1 else ""
    facts = {
        "host": host.get("host", "-"),
        "CPU": f"{host.get('cpu', '-')}, {number_of(host['cores'], 'core')}",
        "memory": f"{host['memory_bytes'] / 2**30:.1f} GiB",
        "accelerator": f"{count}{device['accelerator'] or '-'}",
        "communication": device["backend"] or "-",
    }
    in_c = {}
    for name, built in findings["compiled"].items():
        alone = f"by each process for itself: {built['problem']}"
        plain = f"not compiled, which is slower: {built['problem']}"
        in_c[name] = f"compiled, {built['path'] or alone}" if built["used"] else plain
    _show_rows("This machine", facts.items())
    for title in ("packages", "tools"):
        _show_rows(title.capitalize(), map(_row, findings[title]))
    _show_lines("In C on CPUs", [f"{name}: {state}" for name, state in in_c.items()])
    for warning in findings["warnings"]:
        say(f"Warning: {warning}", "yellow")
    _show_lines("To get what is missing", findings["commands"])
    _show_lines("To get what is optional", findings["optional_commands"])
    say("Ready to train." if findings["ready"] else "Not ready to train: see above.", "bold")


def _row(finding: dict[str, Any]) -> tuple[str, str, str]:
    state = finding["found"] or ("missing" if finding["required"] else "- (optional)")
    if finding["found"] and finding["remedy"]:
        state += f" (needs {finding['requirement'].removeprefix(finding['name'])})"
    return finding["name"], state, finding["purpose"]


def _show_rows(title: str, rows: Iterable[tuple[str, ...]]) -> None:
    grid = Table.grid(padding=(0, 2))
    for row in rows:
        grid.add_row(*row)
    say(title, "bold")
    console.print(grid, "", sep="\n")


def _show_lines(title: str, lines: Sequence[str]) -> None:
    for line in [title, *(f"  {line}" for line in lines)] if lines else ():
        say(line, "bold" if line == title else None)
