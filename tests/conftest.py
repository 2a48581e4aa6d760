"""Fixtures that every room's tests share."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# A busy machine is no failure.
settings.register_profile("bigtrk", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bigtrk")

# Triton reads this when it is imported, which DeepSpeed may do first.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def testdata() -> Path:
    """The folder that holds `data/` and `golden/`."""
    folder = os.environ.get("BIGTRK_TESTDATA", "")
    if not folder or not (Path(folder) / "data").is_dir():
        pytest.skip("BIGTRK_TESTDATA does not name a folder with data/ and golden/")
    return Path(folder)
