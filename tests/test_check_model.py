"""`bigtrk check-model` from a folder of the user's own: its last line, and its exit status."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bigtrk import user_code
from tests.programs import Run

MODELS = """
import sys

import torch
from torch import nn
from torch_geometric.nn import SAGEConv


class Sums(nn.Module):
    def __init__(self, n_node_features, n_edge_features, hidden=8):
        super().__init__()
        self.nodes = nn.Linear(n_node_features, hidden)
        self.edges = nn.Linear(n_edge_features, hidden)
        self.last = nn.Linear(hidden, 1)

    def forward(self, x, edge_features, edge_index, n_owned, exchange):
        source, destination = edge_index
        x, e = self.nodes(x), self.edges(edge_features)
        x = exchange(self.near(self.sums(x, destination, e.relu() * x[source]))[:n_owned])
        return self.last(x[source] * x[destination])[:, 0]

    def sums(self, x, destination, messages):
        return x.index_add(0, destination, messages)

    def near(self, x):
        return x


class Centred(Sums):
    def near(self, x):
        return x - x.mean(0)


class Printing(Sums):
    def near(self, x):
        print("at work", flush=True)
        return x


class Leaving(Sums):
    def near(self, x):
        sys.exit(0)


class Net(nn.Module):
    def __init__(self, n_node_features, n_edge_features, hidden=8, norm=False):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(n_node_features, hidden), SAGEConv(hidden, hidden)])
        self.norm = nn.BatchNorm1d(hidden) if norm else nn.LayerNorm(hidden)

    def forward(self, x, edge_index):
        return self.convs[1](self.norm(self.convs[0](x, edge_index)).relu(), edge_index)


class Failing:
    pass
"""


LINE = MODELS.splitlines().index("        return x - x.mean(0)") + 1


@pytest.fixture(autouse=True)
def _models(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(user_code, "_allowed", set())
    (workdir / "checked_models.py").write_text(MODELS)
    yield
    sys.modules.pop("checked_models", None)


@pytest.fixture
def check(run_program: Run) -> Any:
    def run(*arguments: str) -> tuple[int, list[str], str]:
        command = ["bigtrk", "check-model", *arguments]
        status, out, error = run_program(command)
        return status, out.splitlines(), error

    return run


def test_an_exact_model(check: Any) -> None:
    """The same each time."""
    arguments = "checked_models:Sums", "model.options.hidden=5"
    status, lines, error = check(*arguments)
    assert (status, error) == (0, "")
    found = json.loads(lines[-1])
    assert 0 < found.pop("worst") < 1e-12
    name = "checked_models:Sums"
    assert found == {"model": name, "exact": True, "exchanges": 1, "first_difference": None}
    assert [line.split()[-3] for line in lines if line.startswith("hub ")] == ["2", "3", "4"]
    (verdict,) = [line for line in lines if line.startswith("exact: ")]
    assert verdict.endswith("widths of its exchanges: 5")
    assert check(*arguments)[1] == lines


@pytest.mark.usefixtures("in_three")
def test_what_the_model_prints_is_not_among_the_results(check: Any) -> None:
    status, (line,), error = check("checked_models:Printing", "--json")
    assert (status, json.loads(line)["exact"]) == (0, True)
    assert set(error.splitlines()) == {"at work"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["checked_models:Leaving"], ["calls sys.exit(0)"]),
        (["checked_models:Centred"], [f"mean in checked_models.py:{LINE}: ", "all rows"]),
        (
            ["pyg", "model.options.module=checked_models:Net", "model.options.norm=true"],
            ["layer 'norm' (BatchNorm1d): averages over all nodes"],
        ),
    ],
)
def test_a_model_that_is_not(check: Any, arguments: list[str], words: list[str]) -> None:
    status, lines, error = check(*arguments)
    assert (status, error) == (1, "")
    found = json.loads(lines[-1])
    assert found["exact"] is False
    assert list(found) == ["model", "exact", "worst", "exchanges", "first_difference"]
    for word in words:
        assert word in found["first_difference"], found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["checked_models:Failing"], "is not a subclass of torch.nn.Module"),
        (["checked_models:Sums", "model.options.hiden=3"], "did you mean 'hidden'"),
        (["pyg"], "model.options.module"),
        (["interaction", "hidden"], "write key.sub=value"),
    ],
)
def test_bad_input_is_told_in_one_line(check: Any, arguments: list[str], words: str) -> None:
    status, lines, error = check(*arguments)
    assert (status, lines) == (2, [])
    assert error.startswith("bigtrk: error: ")
    assert words in error
    assert error.count("\n") == 1
