"""The script of the parity matrix writes how long its cases took."""

import sys
import time
from pathlib import Path

import pytest

from bigtrk.disk.files import read_json
from scripts.parity import parity_matrix
from tests.distributed.matrix import KINDS, Case, Trial


def test_the_result_file_has_the_seconds_of_all_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(2, "DDP", "fp64", "layer", 1)
    cases = [Case(trial, kind, 0.0, 0.0, 0.0) for kind in KINDS]

    def launched(*_: object) -> list[list[Case]]:
        time.sleep(0.04)
        return [cases]

    output = tmp_path / "found.json"
    monkeypatch.setattr(parity_matrix, "run", launched)
    monkeypatch.setattr(sys, "argv", ["parity_matrix.py", "--output", str(output)])
    with pytest.raises(SystemExit) as ended:
        parity_matrix.main()
    assert not ended.value.code
    found = read_json(output)
    assert found["summary"]["cases"] == len(KINDS)
    assert 0.04 <= found["seconds"] < 20
