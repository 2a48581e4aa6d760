"""The machine and software of a run, for records, benchmarks and `bigtrk doctor`.

Torch is imported inside the functions, so that `bigtrk doctor` works where it is missing.
"""

import os
import platform
import shutil
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import bigtrk

if TYPE_CHECKING:
    import torch

LOWEST_CAPABILITY = 8, 0  # the lowest with compiled passes over edges
PACKAGES = ("torch", "numpy", "deepspeed", "torch-geometric", "pymetis", "safetensors")
CGROUP, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def machine() -> dict[str, Any]:
    """Returns this machine's host name, CPU, usable cores, usable memory (bytes), accelerator."""
    return {
        "host": platform.node(),
        "cpu": cpu_info("model name") or platform.machine(),
        "cores": open_cores(),
        "memory_bytes": memory_bytes(),
        "accelerator": accelerator(),
    }


def software() -> dict[str, str | None]:
    """Returns the versions of bigtrk, Python and `PACKAGES`; None if a package is not installed."""
    own = {"bigtrk": bigtrk.__version__, "python": platform.python_version()}
    return {**own, **{name: version(name) for name in PACKAGES}}


@cache
def version(package: str) -> str | None:
    """Returns the installed version of a package, without importing it; None if not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def accelerator() -> str:
    """Returns the name of the first accelerator that torch can use, else "cpu"."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"


def slow_cards() -> str | None:
    """Returns a line that names this host's GPUs that lack compiled passes; None if none does."""
    import torch

    cards = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    found = map(torch.cuda.get_device_properties, filter(takes_plain_passes, cards))
    kinds = list(dict.fromkeys(f"{card.name} ({card.major}.{card.minor})" for card in found))
    if not kinds:
        return None
    return (
        f"passes over edges are not compiled, and slower, on {', '.join(kinds)}; compiled ones "
        f"need an NVIDIA GPU of compute capability {'.'.join(map(str, LOWEST_CAPABILITY))}"
    )


def takes_plain_passes(device: "torch.device | int") -> bool:
    """True if this GPU has no compiled passes: it is too old, or not NVIDIA's."""
    import torch

    if not torch.cuda.is_available():
        return False
    card = torch.cuda.get_device_properties(device)
    # Torch for ROCm calls AMD's GPUs cuda, too; their capability is of another scale.
    return torch.version.hip is not None or (card.major, card.minor) < LOWEST_CAPABILITY


def triton_lacks() -> str:
    """Returns what Triton lacks to compile here, and the remedy; "" if nothing.

    Triton takes all of CC for the name of a compiler.
    """
    named = os.environ.get("CC")
    compilers = ("gcc", "clang") if named is None else (named,)
    if not any(map(shutil.which, compilers)):
        return f"finds no {' or '.join(map(repr, compilers))}; install a C compiler"
    headers = Path(sysconfig.get_config_var("INCLUDEPY"))
    if not (headers / "Python.h").exists():
        return f"finds no Python.h in {headers}; install Python's headers, such as python3-dev"
    home = os.environ.get("TRITON_HOME", os.path.expanduser("~"))  # noqa: PTH111  # if none is known
    kept = Path(os.environ.get("TRITON_CACHE_DIR") or Path(home, ".triton", "cache"))
    try:
        kept.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=kept).close()
    except OSError as error:
        return f"cannot write to {kept}: {error.strerror}; set TRITON_CACHE_DIR to another folder"
    return ""


def cpu_info(name: str) -> str | None:
    """Returns a value in /proc/cpuinfo, such as of "vendor_id"; None if the CPU (ARM) lacks it."""
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else []:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def open_cores() -> int:
    """Returns the number of cores that affinity, job and container allow this process."""
    return min([len(os.sched_getaffinity(0)), *cpu_quotas(CGROUP, OWN_GROUPS)])


def memory_bytes() -> int:
    """Returns the memory in bytes of the host, or of the job or container if that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *memory_limits(CGROUP, OWN_GROUPS)])


def memory_limits(root: Path, own: Path) -> list[int]:
    """Lists the memory limits (bytes) of a process's control groups and of their parents."""
    files = _group_files(root, own, "memory", "memory.max", "memory.limit_in_bytes")
    return [int(limit) for file in files if (limit := file.read_text().strip()).isdecimal()]


def cpu_quotas(root: Path, own: Path) -> list[int]:
    """Lists the whole cores, at least 1, allowed by the CPU quota of each such control group."""
    cores = []
    for file in _group_files(root, own, "cpu", "cpu.max", "cpu.cfs_quota_us"):
        period = file.with_name("cpu.cfs_period_us")  # of version 1; cpu.max holds both
        words = (file.read_text() + (period.read_text() if period.exists() else "")).split()
        if words[0].isdecimal():
            cores.append(max(1, int(words[0]) // int(words[1])))
    return cores


def _group_files(root: Path, own: Path, controller: str, second: str, first: str) -> Iterator[Path]:
    """Yields a controller's files in a process's control groups and their parents, up to `root`:
    named `second` in version 2 and `first` in version 1; a host may have both. The file `own` names
    the groups: "0::/group" in version 2, "4:memory:/group" in version 1.
    """
    for line in own.read_text().splitlines() if own.exists() else []:
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top, name = (root / controller, first) if controllers else (root, second)
        folder = top / group.lstrip("/")
        places = [place for place in (folder, *folder.parents) if place.is_relative_to(root)]
        yield from (place / name for place in places if (place / name).is_file())
