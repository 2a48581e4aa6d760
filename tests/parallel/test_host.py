"""Large tensors of a training lie on huge pages, whatever was imported before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = pytest.mark.skipif(
    not ENABLED.exists() or "[madvise]" not in ENABLED.read_text(),
    reason="this kernel gives huge pages to all or to none",
)
SCRIPT = """
import bigtrk.{module}, torch
from bigtrk.parallel.host import configure_process
from bigtrk.parallel.ranks import discover
configure_process(discover())
large = torch.ones(16 * 2**20)
lines = open("/proc/self/smaps_rollup").read().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("AnonHugePages")))
"""


def huge_kib(module: str, **environment: str) -> int:
    """Returns what of a tensor of 64 MiB lies on huge pages after `module` was imported [KiB]."""
    program = [sys.executable, "-c", SCRIPT.format(module=module)]
    return int(subprocess.check_output(program, env={**os.environ, **environment}))


@pytest.mark.parametrize(
    "module", ["train", "training.evaluation.evaluate", "audit.audit", "pipeline.reconstruct"]
)
def test_large_tensors_lie_on_huge_pages(module: str) -> None:
    assert huge_kib(module) > 32 * 1024


def test_the_user_s_environment_wins() -> None:
    assert huge_kib("train", THP_MEM_ALLOC_ENABLE="0") == 0
