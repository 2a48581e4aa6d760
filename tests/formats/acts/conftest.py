"""The runs that several files' tests export."""

from pathlib import Path

import pytest

from tests.formats.acts.runs import make_runs


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs, as `make_runs` makes it."""
    folder = tmp_path_factory.mktemp("made")
    make_runs(folder)
    return folder
