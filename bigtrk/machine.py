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
    return _of_first_core(cpuinfo, "model name") or platform.machine()


def cpu_vendor(cpuinfo: Path) -> str:
    """Returns the first "vendor_id" of a /proc/cpuinfo, "" where it has none (on ARM hosts)."""
    return _of_first_core(cpuinfo, "vendor_id") or ""


def _of_first_core(cpuinfo: Path, name: str) -> str | None:
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else []:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def memory_bytes() -> int:
    """Returns the host's bytes of memory, or the job's or container's limit where that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *cgroup_limits(CGROUP, Path("/proc/self/cgroup"))])


def cgroup_limits(root: Path, own: Path) -> list[int]:
    """Lists the memory limits of a process's control groups and of those above them, up to `root`.

    own: the file that names the groups, a line "0::/group" in version 2 and "4:memory:/group" in
    version 1, whose limits lie in a folder of their own; a host may have both.
    """
    limits = []
    for line in own.read_text().splitlines() if own.exists() else []:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            limits += _limits(root, group, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(root / "memory", group, "memory.limit_in_bytes")
    return limits


def _limits(root: Path, group: str, name: str) -> list[int]:
    folder = root / group.lstrip("/")
    places = [place for place in (folder, *folder.parents) if place.is_relative_to(root)]
    read = [(place / name).read_text().strip() for place in places if (place / name).is_file()]
    return [int(limit) for limit in read if limit.isdecimal()]
