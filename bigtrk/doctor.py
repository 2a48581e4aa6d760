"""`bigtrk doctor`: the installation, a run's choices, what is missing and how to get it.

Packages are looked up by their metadata: importing DeepSpeed takes seconds and prints. Nothing
but rich is needed to run this, since it is what people call when an installation is broken.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bigtrk.machine import machine, memory_bytes, open_cores, slow_cards, version
from bigtrk.native_code import build, compiler

REQUIRED = {
    "torch>=2.10": "training",
    "deepspeed>=0.19.5,<0.20": "the deepspeed engine and launcher",
    "torch-geometric": "graph neural network layers",
    "pymetis>=2025.1": "partitioning with METIS",
    "numpy>=2": "arrays",
    "scipy": "graph construction and tracks",
    "pyarrow": "reading events",
    "pydantic>=2": "checking configurations",
    "PyYAML": "reading configurations",
    "plotly>=7.1,<8": "pages of reports",
    "jinja2": "pages of reports and cards of models",
    "safetensors": "graph, sector and model files",
    "rich": "tables and progress",
    "typer": "the command line",
}
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
    "sampling": "bigtrk.sampling.engines",
    "tracks": "bigtrk.tracks.builders.paths",
    "trees of hits": "bigtrk.tracks.builders.hit_tree",
}
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


def examine() -> dict[str, Any]:
    """Returns all findings, JSON-able; `ready` tells whether the engines can train here.

    A package or tool has its version or path in `found`, and in `remedy` the command that gets it.
    """
    packages = [_package(name, purpose, True) for name, purpose in REQUIRED.items()]
    packages += [_package(name, purpose, False) for name, purpose in OPTIONAL.items()]
    tools = list(_tools())
    missing = [each for each, package in zip(REQUIRED, packages, strict=False) if package["remedy"]]
    problem, compiled, warnings = None, {}, []
    try:
        host = machine()
        compiled, warnings = _compiled(), list(_warnings(host["accelerator"]))
    except (ImportError, OSError) as error:
        host = {"cores": open_cores(), "memory_bytes": memory_bytes(), "accelerator": None}
        remedy = _pip("--force-reinstall", "torch")
        problem = f"torch cannot be imported ({error}); install it again: {remedy}"
    return {
        "ready": not missing and problem is None,
        "packages": packages,
        "tools": tools,
        "machine": host,
        "device": _device(host["accelerator"]),
        "compiled": compiled,
        "warnings": [problem] if problem else warnings,
        "commands": [_pip(*missing)] if missing else [],
        "optional_commands": [
            part["remedy"]
            for part in (*packages, *tools)
            if part["remedy"] and not part["required"]
        ],
    }


def will_do(installed: str, versions: str) -> bool:
    """True if `installed`, such as "2.13.0+cpu", is of `versions`, such as ">=2.10,<3".

    Release numbers alone decide.
    """
    return all(
        (_release(installed) < _release(bound)) == bound.startswith("<")
        for bound in versions.split(",")
        if bound
    )


def _release(text: str) -> tuple[int, ...]:
    match = re.search(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _package(requirement: str, purpose: str, required: bool) -> dict[str, Any]:
    name, at_least, rest = requirement.partition(">=")
    found, versions = version(name), at_least + rest
    remedy = None if found and will_do(found, versions) else _pip(requirement)
    return _finding(name, purpose, found, remedy) | {"required": required, "versions": versions}


def _finding(name: str, purpose: str, found: str | None, remedy: str | None) -> dict[str, Any]:
    known = {"name": name, "purpose": purpose, "found": found, "remedy": remedy}
    return {**known, "required": False, "versions": ""}


def _pip(*requirements: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])


def _tools() -> Iterator[dict[str, Any]]:
    path = None
    with suppress(OSError):
        path = shlex.join(compiler())
    purpose = "fast passes over edges and sampling on CPUs"
    yield _finding("C compiler", purpose, path, None if path else _system("g++", "gcc-c++"))
    yield _finding("srun", "several nodes under SLURM", shutil.which("srun"), None)
    path, purpose = shutil.which("pdsh"), "several nodes with the deepspeed launcher"
    yield _finding("pdsh", purpose, path, None if path else _system("pdsh", "pdsh"))


def _system(debian: str, red_hat: str) -> str:
    for manager, package in (("apt-get", debian), ("dnf", red_hat)):
        if shutil.which(manager):
            return f"sudo {manager} install {package}"
    return "load its module, or ask your administrator"


def _device(accelerator: str | None) -> dict[str, Any]:
    """Returns the devices and the communication between ranks, as a run would choose them."""
    if accelerator in (None, "cpu"):
        return {"accelerator": accelerator, "count": 0, "backend": accelerator and "gloo"}
    import torch

    return {"accelerator": accelerator, "count": torch.cuda.device_count(), "backend": "nccl"}


def _warnings(accelerator: str) -> Iterator[str]:
    if slow := slow_cards():
        yield slow
    if accelerator == "cpu" and NVIDIA_DRIVER.exists():
        yield (
            "an NVIDIA driver is loaded, but torch sees no device: CUDA_VISIBLE_DEVICES hides it, "
            f"the driver is older than torch's CUDA, or torch {version('torch')} is without CUDA"
        )


def _compiled() -> dict[str, dict[str, Any]]:
    """Returns what a run on CPUs has in C and C++, compiled here and now if it was not before:
    whether it is used, where it is kept, and the problem if it is not used or kept.
    """
    found = {}
    with suppress(ImportError):  # of a package that is missing, which is said elsewhere
        for name, module in IN_C.items():
            made = build(*import_module(module).CODE)
            path = made.path and str(made.path)
            used = made.library is not None
            found[name] = {"used": used, "path": path, "problem": made.problem}
    return found


def show(findings: dict[str, Any], console: Console) -> None:
    """Prints what `examine` found."""
    host, device = findings["machine"], findings["device"]
    count = f"{device['count']} x " if device["count"] > 1 else ""
    pairs = {
        "host": host.get("host", "-"),
        "CPU": f"{host.get('cpu', '-')}, {host['cores']} cores",
        "memory": f"{host['memory_bytes'] / 2**30:.1f} GiB",
        "accelerator": f"{count}{device['accelerator'] or '-'}",
        "communication": device["backend"] or "-",
    }
    _show_rows("This machine", [(Text(k, style="dim"), Text(pairs[k])) for k in pairs], console)
    for title in ("packages", "tools"):
        _show_rows(title.capitalize(), map(_row, findings[title]), console)
    in_c = []
    for name, built in findings["compiled"].items():
        state = f"plain, and compiled ones are faster: {built['problem']}"
        if built["used"]:
            state = (
                f"compiled, {built['path'] or 'by each process for itself: ' + built['problem']}"
            )
        in_c.append(f"{name}: {state}")
    _show_lines("In C on CPUs", in_c, console)
    for warning in findings["warnings"]:
        console.print(Text(f"Warning: {warning}", style="yellow"), soft_wrap=True)
    _show_lines("To get what is missing", findings["commands"], console)
    _show_lines("To get what is optional", findings["optional_commands"], console)
    verdict = "Ready to train." if findings["ready"] else "Not ready to train: see above."
    console.print(Text(verdict, style="bold"))


def _row(finding: dict[str, Any]) -> tuple[Text, ...]:
    missing = finding["required"] and finding["remedy"]
    style = "bold red" if missing else "" if finding["found"] else "dim"
    state = finding["found"] or ("missing" if finding["required"] else "- (optional)")
    if finding["found"] and finding["remedy"]:
        state += f" (needs {finding['versions']})"
    name, purpose = Text(finding["name"], style=style), Text(finding["purpose"], style="dim")
    return name, Text(state, style=style), purpose


def _show_rows(title: str, rows: Iterable[tuple[Text, ...]], console: Console) -> None:
    grid = Table.grid(padding=(0, 2))
    for row in rows:
        grid.add_row(*row)
    console.print(Text(title, style="bold"), grid, "", sep="\n")


def _show_lines(title: str, lines: Sequence[str], console: Console) -> None:
    if lines:
        console.print(Text(title, style="bold"))
    for line in lines:
        # Soft wrap: commands and paths must survive being copied.
        console.print(Text(f"  {line}"), soft_wrap=True)
