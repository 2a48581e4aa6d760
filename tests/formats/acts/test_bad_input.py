"""A model that cannot be exported ends in one line, and nothing is written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bigtrk.formats.acts import modules
from tests.programs import Run, refusal_of
from tests.test_bad_input import one_line


def attention(folder: Path) -> None:
    describe(folder, lambda content: content.update(model={"name": "attention"}))


def other_edges(folder: Path) -> None:
    describe(folder, lambda content: content["data"].update(edge_features=["dr", "curvature"]))


def describe(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "mine" / "classifier" / "config.json"
    content = json.loads(path.read_text())
    change(content["configuration"])
    path.write_text(json.dumps(content))


def another(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "notes.txt").write_text("")


def not_ours(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "model.onnx").write_text("")


def no_package(_: Path) -> None: ...


CASES: list[tuple[str, Callable[[Path], None] | None, str]] = [
    ("absent", None, "absent: no such folder; name the folder of a run, such as runs/0001"),
    ("mine/classifier", attention, "ACTS cannot load its model.name=attention; export a run"),
    ("mine/classifier", other_edges, "reads the edge feature 'curvature', which ACTS does not"),
    ("mine", another, "out: holds notes.txt, which no export wrote; name another folder"),
    ("mine", not_ours, "out: holds model.onnx, which no export wrote; name another folder"),
    ("mine", no_package, "onnx is not installed; pip install 'bigtrk[onnx]'"),
]


@pytest.mark.parametrize(("run", "change", "told"), CASES, ids=[told for _, _, told in CASES])
def test_bad_input_is_told_in_one_line(
    run: str,
    change: Callable[[Path], None] | None,
    told: str,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_program: Run,
) -> None:
    folder = shutil.copytree(made, tmp_path / "made")
    if change:
        change(folder)
    if change is no_package:
        monkeypatch.setattr(modules, "find_spec", lambda _: None)
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    command = ["bigtrk", "export", "acts", run, "out"]
    assert told in one_line(refusal_of(run_program(command)))
    assert sorted(folder.iterdir()) == before
