"""Tests what the measurement of reconstruction takes from a process, and its table."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bigtrk.errors import InputError
from scripts.bench.bench_reconstruct import apart, figures, peak_memory
from scripts.docs.tables import cost_tables
from tests.programs import CHECKOUT


def event(hits: int, seconds: float, edges: int) -> dict[str, Any]:
    stages = {"embedding": seconds, "tracks": 2 * seconds}
    return {"hits": hits, "tracks": 1, "seconds": stages, "edges": {"radius": edges}, "notes": []}


MADE = {"events": {str(i): event(100 + i, 1.0 + i, 10 * i) for i in range(3)}, "failed": {}}


def test_memory_is_that_of_one_process() -> None:
    """Whatever the process holds that starts it."""
    held = 300 * 2**20
    big = b"1" * held
    script = (
        "from scripts.bench.bench_reconstruct import peak_memory; before = peak_memory();"
        f"big = b'1' * {held}; print(before, peak_memory() - before)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    before, grown = map(int, done.stdout.split())
    assert peak_memory() > before + held / 2, "this process holds more"
    assert grown == pytest.approx(held, rel=0.1)
    assert len(big) == held


def test_a_folder_without_a_pipeline_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="ended with status 2"):
        apart([str(tmp_path), "--events", str(tmp_path)])
    assert "holds no pipeline.json" in capfd.readouterr().err


def test_figures_are_medians_over_events() -> None:
    found = figures(MADE, 2**31)
    assert found["hits"] == 101
    assert found["seconds"] == {"embedding": 2.0, "tracks": 4.0}
    assert found["all_seconds"] == 6.0
    assert found["edges"] == {"radius": 10}
    table = cost_tables.reconstruct({"rows": [{"size": 100, **found}]}).markdown()
    assert table.splitlines() == [
        "| hits | edges, radius | embedding | tracks | all | per 100,000 hits | memory |",
        "|--:|--:|--:|--:|--:|--:|--:|",
        "| 101 | 10 | 2.00 s | 4.00 s | 6.0 s | 5,940.6 s | 2.0 GiB |",
    ]
