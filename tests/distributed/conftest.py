"""Fixtures of trainings on several ranks."""

from pathlib import Path

import pytest

from tests.distributed.runs import write_events


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five events, in the folders of `write_events`."""
    folder = tmp_path_factory.mktemp("events")
    write_events(folder)
    return folder
