"""The studies of `scripts/studies/`, run as programs on small events."""

import json
import math
import sys
from pathlib import Path

import pytest

from tests.distributed.graphs import random_graph
from tests.distributed.runs import write_in_sectors
from tests.programs import CHECKOUT, run_shell

SMALL = "model.hidden=8 model.layers=2 sampling.batch_size=20"


def study(name: str, arguments: str, folder: Path) -> dict[str, dict[str, float | None]]:
    """Runs a study in a folder and returns its last line."""
    run = f"PYTHONPATH={CHECKOUT} {sys.executable} -m scripts.studies.{name} {arguments}"
    found: dict[str, dict[str, float | None]] = json.loads(run_shell(run, folder).splitlines()[-1])
    return found


@pytest.mark.slow
def test_studies_compare_all_ways(tmp_path: Path) -> None:
    write_in_sectors(tmp_path, [random_graph(seed, 60, 300) for seed in range(3)], 2)
    given = f"graphs sectors --minutes 0.02 {SMALL}"
    trained = study("sampling_study", given, tmp_path)
    assert len(trained) == 5
    assert all(0 <= (found["auc"] or math.nan) <= 1 for found in trained.values())
    run = "study/full-graph sectors --draws 4 --events 2"
    audited = study("gradient_audit", run, tmp_path)
    assert list(audited) == ["events", "shadow", "naive-sectors", "halo-sectors", "wedges"]
    assert audited["events"]["bias_squared"] == 0
    assert audited["events"]["cosine"] == pytest.approx(1)
