"""The machine and software of a run, for its record, for benchmarks and `bigtrk doctor`.

Torch is imported inside the functions, so that `bigtrk doctor` works where it is missing.
"""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import bigtrk

PACKAGES = ("torch", "numpy", "deepspeed", "torch-geometric", "pymetis", "safetensors")
CGROUP = Path("/sys/fs/cgroup")


def machine() -> dict[str, Any]:
    """Returns host name, CPU model, cores and bytes of memory open to this process, accelerator."""
    return {
        "host": platform.node(),
        "cpu": cpu_model(Path("/proc/cpuinfo")),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_bytes(),
        "accelerator": accelerator(),
    }


def software() -> dict[str, str | None]:
    """Returns the versions of what made a file or trained a run; None for what is not installed."""
    own = {"bigtrk": bigtrk.__version__, "python": platform.python_version()}
    return {**own, **{name: version(name) for name in PACKAGES}}


def version(package: str) -> str | None:
    """Returns the installed version of a distribution, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def accelerator() -> str:
    """Returns the name of the first accelerator that torch can use, else "cpu"."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"


def cpu_model(cpuinfo: Path) -> str:
    """Returns the first "model name" of a /proc/cpuinfo, or the architecture (on ARM hosts)."""
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.machine()


def memory_bytes() -> int:
    """Returns the host's bytes of memory, or the job's or container's limit where that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own = _own_cgroup(Path("/proc/self/cgroup"))
    return min([physical, *cgroup_limits(CGROUP, own)])


def cgroup_limits(root: Path, group: str) -> list[int]:
    """Lists the memory limits of a version 2 control group and of those above it, up to `root`."""
    folder = root / group.lstrip("/")
    limits = []
    for place in (folder, *folder.parents):
        limit = place / "memory.max"
        if place.is_relative_to(root) and limit.is_file():
            limits.append(limit.read_text().strip())
    return [int(limit) for limit in limits if limit.isdecimal()]


def _own_cgroup(path: Path) -> str:
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("0::"):
                return line.removeprefix("0::")
    return "/"
