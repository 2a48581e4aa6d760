"""The folder and the data of searches whose trainings are a stand-in's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bigtrk import shipped
from bigtrk.studies.search import trainings
from bigtrk.studies.search.plan import Search
from tests.programs import CHECKOUT
from tests.studies.search import stand_in_searches


@pytest.fixture(scope="session")
def stand_in_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    stand_in_searches.write_data(folder)
    return folder


@pytest.fixture
def plan(
    stand_in_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Search]:
    """Plans a search in the working folder, whose trainings are a stand-in's."""
    monkeypatch.setenv("TEMPLATE", str(stand_in_data))
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped, "TRAIN", stand_in_searches.STAND_IN)
    monkeypatch.setattr(trainings, "LOOK", stand_in_searches.LOOK)
    Path("empty.yaml").touch()

    def make(space: str, trials: int) -> Search:
        Path("space.yaml").write_text(space)
        return stand_in_searches.plan_here(stand_in_data, trials)

    return make
