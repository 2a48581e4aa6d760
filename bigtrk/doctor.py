"""`bigtrk doctor`: the installation, a run's choices, what is missing and how to get it.

Packages are looked up by their metadata: importing DeepSpeed takes seconds and prints. Nothing
but rich is needed to run this, since it is what people call when an installation is broken.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from warnings import catch_warnings

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bigtrk.machine import machine, memory_bytes, open_cores, version
from bigtrk.native_code import Build, build, compiler

DEFAULT_ENGINE = "ddp"
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
    "optuna": "bigtrk search",
    "tensorboard": "run.loggers=tensorboard",
    "wandb": "run.loggers=wandb",
}
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
MOST_LOCAL_RANKS = 8


@dataclass(frozen=True)
class Finding:
    """A thing looked for. `found` is its version or path; `remedy` the command that gets it.

    versions: those that will do, such as ">=2.10"; any if it is empty.
    """

    name: str
    purpose: str
    found: str | None
    required: bool
    remedy: str | None
    versions: str = ""

    @property
    def fine(self) -> bool:
        return self.remedy is None


def examine() -> dict[str, Any]:
    """Returns all findings, JSON-able.

    `ready` tells whether the default engine can train here; `engines.deepspeed` says the same of
    DeepSpeed, with what it lacks.
    """
    packages = [*map(_required, REQUIRED), *map(_optional, OPTIONAL)]
    tools = [_c_compiler(), _srun(), _pdsh()]
    host, problem = _host()
    lacking = [package.name for package in packages if package.required and not package.fine]
    for_deepspeed = [one.name for one in packages if one.name == "deepspeed" and not one.fine]
    return {
        "ready": not lacking and problem is None,
        "packages": [asdict(package) for package in packages],
        "tools": [asdict(tool) for tool in tools],
        "machine": host,
        "device": _device(host["accelerator"]),
        "compiled": _compiled(problem),
        "pyg": _pyg(problem),
        "threads_per_rank": _threads(host["cores"]),
        "engines": {
            "default": DEFAULT_ENGINE,
            "deepspeed": {"ready": problem is None and not for_deepspeed, "lacks": for_deepspeed},
        },
        "warnings": list(_warnings(host["accelerator"], problem)),
        "commands": list(_commands(packages)),
        "optional_commands": [
            part.remedy for part in (*packages, *tools) if part.remedy and not part.required
        ],
    }


def show(findings: dict[str, Any], console: Console) -> None:
    """Prints what `examine` found."""
    engines, lacks = findings["engines"], findings["engines"]["deepspeed"]["lacks"]
    able = "yes" if engines["deepspeed"]["ready"] else f"no, lacks {', '.join(lacks) or 'torch'}"
    _show_pairs("This machine", _host_pairs(findings), console)
    engine_pairs = {"default": engines["default"], "deepspeed can run": able}
    if findings["pyg"]:
        engine_pairs["PyG's layers use"] = _by_pyg(**findings["pyg"])
    _show_pairs("Engines", engine_pairs, console)
    _show_findings("Packages", findings["packages"], console)
    _show_findings("Tools", findings["tools"], console)
    in_c = [f"{name}: {_in_c(**built)}" for name, built in findings["compiled"].items()]
    _show_lines("In C on CPUs", in_c, console)
    for warning in findings["warnings"]:
        console.print(Text(f"Warning: {warning}", style="yellow"), soft_wrap=True)
    _show_lines("To get what is missing", findings["commands"], console)
    _show_lines("To get what is optional", findings["optional_commands"], console)
    console.print(Text(_verdict(findings["ready"]), style="bold"))


def will_do(installed: str, versions: str) -> bool:
    """Says whether `installed`, such as "2.13.0+cpu", is of `versions`, such as ">=2.10,<3".

    Release numbers alone decide.
    """
    bounds = [bound for bound in versions.split(",") if bound]
    return all(
        _release(installed) < _release(bound[1:])
        if bound.startswith("<")
        else _release(installed) >= _release(bound.removeprefix(">="))
        for bound in bounds
    )


def _release(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _required(requirement: str) -> Finding:
    name, at_least, rest = requirement.partition(">=")
    found, versions = version(name), at_least + rest
    remedy = None if found and will_do(found, versions) else _pip("install", requirement)
    return Finding(name, REQUIRED[requirement], found, True, remedy, versions)


def _optional(name: str) -> Finding:
    found = version(name)
    remedy = None if found else _pip("install", name)
    return Finding(name, OPTIONAL[name], found, required=False, remedy=remedy)


def _pip(*arguments: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", *arguments])


def _c_compiler() -> Finding:
    path = None
    with suppress(OSError):
        path = shlex.join(compiler())
    remedy = None if path else _system({"apt-get": "g++", "dnf": "gcc-c++"}, "module load gcc")
    return Finding("C compiler", "fast passes over edges and sampling on CPUs", path, False, remedy)


def _srun() -> Finding:
    return Finding("srun", "several nodes under SLURM", shutil.which("srun"), False, None)


def _pdsh() -> Finding:
    path = shutil.which("pdsh")
    remedy = None if path else _system({"apt-get": "pdsh", "dnf": "pdsh"}, "module load pdsh")
    return Finding("pdsh", "several nodes with the deepspeed launcher", path, False, remedy)


def _system(packages: dict[str, str], otherwise: str) -> str:
    for manager, package in packages.items():
        if shutil.which(manager):
            return f"sudo {manager} install {package}"
    return otherwise


def _host() -> tuple[dict[str, Any], str | None]:
    """Returns the machine, and why torch cannot be used where it cannot."""
    try:
        return machine(), None
    except (ImportError, OSError) as error:
        host = {"cores": open_cores(), "memory_bytes": memory_bytes(), "accelerator": None}
        return host, f"torch cannot be imported ({error})"


def _device(accelerator: str | None) -> dict[str, Any]:
    """Returns accelerator, communication backend, DS_ACCELERATOR, as a run would choose them."""
    if accelerator in (None, "cpu"):
        count, backend, ours = 0, accelerator and "gloo", accelerator
    else:
        import torch

        count, backend, ours = torch.cuda.device_count(), "nccl", "cuda"
    return {
        "accelerator": accelerator,
        "count": count,
        "backend": backend,
        "ds_accelerator": os.environ.get("DS_ACCELERATOR", ours),
    }


def _compiled(problem: str | None) -> dict[str, dict[str, Any]]:
    """Returns what a run on CPUs has in C and C++, compiled here and now if it was not before."""
    if problem:
        return {}
    try:
        from bigtrk.models.edges import native as passes
        from bigtrk.sampling import engines as sampling
        from bigtrk.tracks.builders import hit_tree, paths
    except ImportError:  # of a package that is missing, which is said elsewhere
        return {}
    return {
        "passes over edges": _built(build(*passes.CODE)),
        "sampling": _built(build(*sampling.CODE)),
        "tracks": _built(build(*paths.CODE)),
        "trees of hits": _built(build(*hit_tree.CODE)),
    }


def _built(found: Build) -> dict[str, Any]:
    """Says whether it is used, where it is kept, and the problem if it is not used or kept."""
    path = str(found.path) if found.path else None
    return {"used": found.library is not None, "path": path, "problem": found.problem}


def _pyg(problem: str | None) -> dict[str, Any] | None:
    """Returns whether PyTorch Geometric uses torch-scatter, and which version is installed."""
    if problem:
        return None
    try:
        with catch_warnings(action="ignore"):  # what it warns of is said here
            from torch_geometric.typing import WITH_TORCH_SCATTER
    except ImportError:  # of a package that is missing, which is said elsewhere
        return None
    return {"scatter": bool(WITH_TORCH_SCATTER), "installed": version("torch-scatter")}


def _threads(cores: int) -> dict[str, int]:
    """Counts the threads of each rank by the number of ranks on this host."""
    powers = [2**power for power in range(MOST_LOCAL_RANKS.bit_length())]
    return {str(ranks): max(1, cores // ranks) for ranks in powers if ranks <= max(cores, 1)}


def _warnings(accelerator: str | None, problem: str | None) -> Iterator[str]:
    if problem and version("torch"):
        yield f"{problem}; install it again: {_pip('install', '--force-reinstall', 'torch')}"
    of_cards = {} if problem else _card_problems()
    yield from of_cards.values()
    if accelerator == "cpu" and NVIDIA_DRIVER.exists() and "driver" not in of_cards:
        yield (
            "an NVIDIA driver is loaded, but torch sees no device: either CUDA_VISIBLE_DEVICES "
            f"hides it, or torch {version('torch')} is a build without CUDA"
        )
    own = os.environ.get("DS_ACCELERATOR")
    if own and accelerator and (own == "cpu") != (accelerator == "cpu"):
        yield f"DS_ACCELERATOR={own} contradicts the device found ({accelerator}); unset it"
    if _is_from_index("trackml"):
        yield (
            "the package trackml of the Python package index is an unrelated client, not the "
            f"TrackML challenge's library; bigtrk needs neither: {_pip('uninstall', 'trackml')}"
        )


def _card_problems() -> dict[str, str]:
    from bigtrk.cards import problems  # it imports torch

    return problems()


def _is_from_index(package: str) -> bool:
    """Says whether a package was installed by name; pip notes the URL of a repository or a file."""
    try:
        return metadata.distribution(package).read_text("direct_url.json") is None
    except metadata.PackageNotFoundError:
        return False


def _commands(packages: Sequence[Finding]) -> Iterator[str]:
    """Yields one pip command for all that is required."""
    needed = zip(REQUIRED, packages, strict=False)  # the required packages come first
    missing = [requirement for requirement, package in needed if not package.fine]
    if missing:
        yield _pip("install", *missing)


def _host_pairs(findings: dict[str, Any]) -> dict[str, str]:
    host, device = findings["machine"], findings["device"]
    threads = findings["threads_per_rank"].items()
    count = f"{device['count']} x " if device["count"] > 1 else ""
    return {
        "host": str(host.get("host", "-")),
        "CPU": f"{host.get('cpu', '-')}, {host['cores']} cores",
        "memory": f"{host['memory_bytes'] / 2**30:.1f} GiB",
        "accelerator": f"{count}{device['accelerator'] or '-'}",
        "communication": str(device["backend"] or "-"),
        "DS_ACCELERATOR": str(device["ds_accelerator"] or "-"),
        "threads per rank": ", ".join(f"{value} at {ranks}" for ranks, value in threads)
        + " ranks on this host",
    }


def _in_c(used: bool, path: str | None, problem: str | None) -> str:
    if not used:
        return f"plain, and compiled ones are faster: {problem}"
    return f"compiled, {path}" if path else f"compiled by each process for itself: {problem}"


def _by_pyg(scatter: bool, installed: str | None) -> str:
    if scatter:
        # PyG's choice (torch_geometric/utils/_scatter.py): there is no other for its layers.
        return f"torch-scatter {installed} for maxima, minima and products on GPUs, else torch"
    why = f"{installed} cannot be imported with this torch" if installed else "is not installed"
    return f"torch alone: torch-scatter {why}"


def _show_pairs(title: str, pairs: dict[str, str], console: Console) -> None:
    grid = Table.grid(padding=(0, 2))
    for label, text in pairs.items():
        grid.add_row(Text(label, style="dim"), Text(text))
    console.print(Text(title, style="bold"), grid, "", sep="\n")


def _show_findings(title: str, findings: Sequence[dict[str, Any]], console: Console) -> None:
    grid = Table.grid(padding=(0, 2))
    for finding in findings:
        missing = finding["required"] and finding["remedy"]
        style = "bold red" if missing else "" if finding["found"] else "dim"
        grid.add_row(
            Text(finding["name"], style=style),
            Text(_state(finding), style=style),
            Text(finding["purpose"], style="dim"),
        )
    console.print(Text(title, style="bold"), grid, "", sep="\n")


def _show_lines(title: str, lines: Sequence[str], console: Console) -> None:
    if lines:
        console.print(Text(title, style="bold"))
    for line in lines:
        # Soft wrap: commands and paths must survive being copied.
        console.print(Text(f"  {line}"), soft_wrap=True)


def _state(finding: dict[str, Any]) -> str:
    if finding["found"]:
        needed = f" (needs {finding['versions']})" if finding["remedy"] else ""
        return f"{finding['found']}{needed}"
    return "missing" if finding["required"] else "- (optional)"


def _verdict(ready: bool) -> str:
    if ready:
        return f"Ready to train with the default engine ({DEFAULT_ENGINE})."
    return "Not ready to train: see above."
