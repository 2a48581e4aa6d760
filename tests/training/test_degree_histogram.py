"""The degrees of training events reach the network that asks for them, and stay with its run."""

import pytest

from bigtrk import user_code
from bigtrk.models.settings import PyGConfig
from bigtrk.training.data.features import degree_histogram
from bigtrk.user_code import allow_code
from tests.distributed.graphs import source, sources

NETS = "tests.models.pyg_nets"


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "_allowed", set())
    allow_code([NETS])


def test_degrees_are_those_of_whole_graphs_however_they_are_cut() -> None:
    counted = degree_histogram(sources())
    expected: dict[int, int] = {}
    for event in sources():
        ends = event.graph.edge_index[1].tolist()
        for node in range(event.graph.n_nodes):
            degree = ends.count(node)
            expected[degree] = expected.get(degree, 0) + 1
    assert counted == [expected.get(degree, 0) for degree in range(max(expected) + 1)]
    assert degree_histogram([source(1, 3), source(2, 2)]) == degree_histogram(
        [source(1, 1), source(2, 1)]
    )


def test_a_network_asks_by_an_argument() -> None:
    for options, lacks in (
        ({"module": f"{NETS}:Degrees"}, True),
        ({"module": f"{NETS}:Degrees", "degree_histogram": [1, 2]}, False),
        ({"module": f"{NETS}:Plain"}, False),
    ):
        assert PyGConfig.model_validate({"options": options}).lacks_degrees() == lacks
