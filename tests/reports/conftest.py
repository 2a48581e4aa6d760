"""Fixtures of the tests of reports."""

from pathlib import Path

import pytest

from tests.reports.run_folders import MakeRun, run_writer


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes run folders into the test's own folder."""
    return run_writer(tmp_path)
