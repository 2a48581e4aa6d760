"""The examples of the pages "Add a ..." run, and do what the pages say."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from bigtrk.cost.footprint import footprint
from bigtrk.models import settings
from bigtrk.models.protocol import no_exchange
from tests.models.graphs import Cut, F, G, gradients, make_graph
from tests.programs import CHECKOUT

PAGES = CHECKOUT / "docs" / "adding"


def example(page: str) -> ModuleType:
    """The module that the page's block of Python makes."""
    (block,) = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), flags=re.DOTALL)
    return _module(f"adding_{Path(page).stem}", block)


def _module(name: str, source: str) -> ModuleType:
    module = sys.modules[name] = ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
    return module


def test_the_model_is_checked_where_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    example("model.md")
    first, second = capsys.readouterr().out.splitlines()
    assert first == "widths of its exchanges: [8, 8]"
    assert float(second.rpartition(" ")[2]) < 1e-14


def test_the_model_trains_in_sectors_as_in_the_whole_graph() -> None:
    """In float64 each gradient too, from sectors of one process, one of which is empty."""
    model = example("model.md").SumsConfig(hidden=5, layers=3).build(F, G, False).double()
    graph = make_graph()
    cut, expected = Cut(graph), model(*graph, len(graph[0]), no_exchange)
    wanted = gradients(model, expected)
    made = cut.merged(model.forward_all(cut.sectors, cut.exchange))
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
    found = gradients(model, made)
    assert found.keys() == {name for name, _ in model.named_parameters()}
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-11, atol=1e-11, msg=name)


def test_one_name_makes_the_model_a_choice() -> None:
    """With it in AnyConfig a configuration names it and the cost model counts it."""
    own = example("model.md").SumsConfig
    source = Path(settings.__file__).read_text()
    line = "AnyConfig = InteractionGNNConfig | AttentionGNNConfig | EdgeMLPConfig\n"
    assert line in source
    added = f"from {own.__module__} import SumsConfig\n{line[:-1]} | SumsConfig\n"
    registered: Any = _module("settings_with_sums", source.replace(line, added))
    config = TypeAdapter(registered.ModelConfig).validate_python({"name": "sums", "hidden": 8})
    assert isinstance(config, own)
    assert footprint(config, 4, 6, cut=True).exchanged == (32, 32, 32, 32)
