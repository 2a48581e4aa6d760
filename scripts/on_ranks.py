"""Measurements on several ranks of this host, each a launch of torchrun."""

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bigtrk.disk.files import read_json, write_json
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks, configure_process, discover
from bigtrk.studies.launch import torchrun_command, torchrun_environment


def torchrun(ranks: int, script: Path, *arguments: str, quiet: bool = False) -> None:
    """Runs `script` on `ranks` ranks of this host; `quiet`: throws away what they print. Raises
    CalledProcessError if a rank failed.
    """
    command = torchrun_command(ranks, script, arguments)
    output = subprocess.DEVNULL if quiet else None
    subprocess.run(
        command, check=True, env=torchrun_environment(ranks), stdout=output, stderr=output
    )


def measured(ranks: int, script: str, *arguments: str) -> dict[str, Any]:
    """Returns what `script` finds on `ranks` ranks, where it calls `measure_on_rank` with --result;
    raises CalledProcessError if a rank failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        torchrun(ranks, Path(script), *arguments, f"--result={result}")
        found: dict[str, Any] = read_json(result)
        return found


def measure_on_rank(measure: Callable[[Ranks], dict[str, Any]], result: Path) -> None:
    """Runs the part of one rank: `measure`, a collective; rank 0 writes what it returns."""
    ranks = discover()
    configure_process(ranks)
    with process_group(ranks):
        found = measure(ranks)
        if ranks.is_first:
            write_json(result, found)
