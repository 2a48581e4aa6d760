"""The file of a module map gives back what was written, or one line about what is wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.module_map import ModuleMap, read_module_map, write_module_map
from bigtrk.graphs.builders.module_map_builder import learn_module_map
from bigtrk.graphs.event_graph import Section
from bigtrk.graphs.storage.tensor_files import SectionFile, write_sections


@pytest.fixture(scope="module")
def learnt() -> ModuleMap:
    return learn_module_map([simulate_event(60, seed=5)], "for a test")


def test_what_is_written_is_read(tmp_path: Path, learnt: ModuleMap) -> None:
    write_module_map(tmp_path / "map", learnt)
    read = read_module_map(tmp_path / "map")
    assert (read.made, read.digest()) == (learnt.made, learnt.digest())
    assert np.array_equal(read.triplets, learnt.triplets)
    for kind, bounds in learnt.bounds.items():
        assert np.array_equal(read.bounds[kind].lower, bounds.lower)
        assert np.array_equal(read.bounds[kind].upper, bounds.upper)


def other_format(_: dict[str, Section], record: dict[str, Any]) -> None:
    record["format"] = "bigtrk merge tree"


def other_version(_: dict[str, Section], record: dict[str, Any]) -> None:
    record["version"] = 2


def other_features(_: dict[str, Section], record: dict[str, Any]) -> None:
    record["features"] = ["z0"]


def row_outside(sections: dict[str, Section], _: dict[str, Any]) -> None:
    sections["map"]["triplets"][0, 0] = 10**6


def twice(sections: dict[str, Section], _: dict[str, Any]) -> None:
    sections["map"]["triplets"][1] = sections["map"]["triplets"][0]


def without_modules(sections: dict[str, Section], _: dict[str, Any]) -> None:
    del sections["map"]["modules"]


def no_number(sections: dict[str, Section], _: dict[str, Any]) -> None:
    sections["sigma"]["upper"][0, 0] = torch.nan


def fewer(sections: dict[str, Section], _: dict[str, Any]) -> None:
    sections["minmax"]["lower"] = sections["minmax"]["lower"][:, :-1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (other_format, "holds no module map"),
        (other_version, "version"),
        (other_features, "is of other features than z0_12, "),
        (row_outside, "triplets runs from"),
        (twice, "holds a triplet twice; learn it again"),
        (without_modules, "has no modules; learn it again"),
        (no_number, "sigma windows are not finite"),
        (fewer, "minmax: lower has shape"),
    ],
)
def test_another_file_is_refused(
    tmp_path: Path,
    learnt: ModuleMap,
    change: Callable[[dict[str, Section], dict[str, Any]], None],
    told: str,
) -> None:
    path = tmp_path / "map"
    write_module_map(path, learnt)
    opened = SectionFile(path)
    record = dict(opened.record)
    sections = {name: opened.read(name) for name in opened.digests}
    change(sections, record)
    write_sections(path, sections, record)
    with pytest.raises(InputError, match=told) as caught:
        read_module_map(path)
    assert "\n" not in str(caught.value)
