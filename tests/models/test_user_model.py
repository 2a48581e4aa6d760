"""A model of the user's own is made of its class and options, or one line says why not."""

from typing import Any

import pytest
import torch
from pydantic import BaseModel
from torch import nn

from bigtrk import user_code
from bigtrk.errors import InputError
from bigtrk.models.settings import UserModelConfig, make_model
from bigtrk.proof.prove import check_model, prove
from bigtrk.user_code import allow_code
from tests.models.graphs import F, G
from tests.models.user_models import Layered, Simple

HERE, THERE = __name__, "tests.models.user_models"


class NoModule:
    """A class that is no torch.nn.Module."""


class Failing(Simple):
    """A class whose own code fails."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        nn.Linear(2, 3)(torch.ones(5))


class Lenient(Simple):
    """Its options are pydantic's own kind, which ignores what it does not know."""

    class Options(BaseModel):
        hidden: int = 4


class Simplest(nn.Linear):
    """A class without options."""

    def __init__(self, n_node_features: int, n_edge_features: int) -> None:
        super().__init__(n_node_features, n_edge_features)


class Loose(nn.Linear):
    """Takes any option, and has one of its own that is needed."""

    def __init__(self, *sizes: int, width: int, **options: Any) -> None:
        super().__init__(sum(sizes), width)
        self.options = options


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "_allowed", set())
    allow_code([HERE, THERE])


def made(name: str, **options: Any) -> nn.Module:
    return make_model(UserModelConfig(name=name, options=options), F, G)


def test_both_forms_are_made_of_their_options_and_keep_the_contract() -> None:
    simple, layered = made(f"{THERE}:Simple", hidden=5), made(f"{THERE}:Layered", layers=3)
    assert isinstance(simple, Simple)
    assert isinstance(layered, Layered)
    assert check_model(simple, F, G) == [5, 5]
    assert check_model(layered, F, G) == [4, 4, 4]
    assert prove(simple, F, G).exact
    assert prove(layered, F, G).exact


def test_a_class_without_options_of_its_own_gets_them_as_they_are() -> None:
    loose = made(f"{HERE}:Loose", width=3, more={"a": [1]})
    assert isinstance(loose, Loose)
    assert loose.options == {"more": {"a": [1]}}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (f"{THERE}:Simple", {"hiden": 3}, "takes no model.options.hiden; did you mean 'hidden'?"),
        (f"{HERE}:Lenient", {"hiden": 3}, "takes no model.options.hiden; did you mean 'hidden'?"),
        (f"{HERE}:Simplest", {"hidden": 3}, "takes no model.options.hidden; it has no options"),
        (f"{THERE}:Layered", {"hidden": "x"}, "model.options of .*hidden: Input should be a valid"),
        (f"{HERE}:Loose", {}, "missing a required argument: 'width'"),
        (f"{HERE}:NoModule", {}, "is not a subclass of torch.nn.Module"),
        (f"{HERE}:Failing", {}, r"called with 3 node features, 2 edge .*RuntimeError: mat1"),
        (f"{HERE}:None_", {}, "has no 'None_'; correct the name"),
        ("nowhere.at.all:Net", {}, "if you trust this module, add --code nowhere.at.all"),
    ],
)
def test_what_cannot_be_made_is_told_in_one_line(
    name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words) as failure:
        made(name, **options)
    assert name in str(failure.value)
    assert "\n" not in str(failure.value)


def test_settings_are_told_apart_by_their_options() -> None:
    """The counts of a pass are kept by settings (cost/footprint.py)."""
    small, large = (UserModelConfig(name="a:B", options={"hidden": n}) for n in (1, 2))
    assert len({small, large, UserModelConfig(name="a:B", options={"hidden": 1})}) == 2
