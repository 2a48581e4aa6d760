"""Fixtures that tests of gradients share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bigtrk.parallel.process_group import process_group
from tests.audit.small import write_data
from tests.distributed.ranks import ALONE


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes three events, in `graphs` and in `sectors`."""
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """Makes this process a group of its own."""
    with process_group(ALONE):
        yield
