"""The commands of docs/acorn.md on graphs, in its order, on files that acorn could have written."""

import re
from pathlib import Path

import torch

from tests.formats.acorn.events import columns, load, write
from tests.programs import CHECKOUT, run_in_one

PAGE = (CHECKOUT / "docs" / "acorn.md").read_text()
ON_GRAPHS = PAGE.partition("## Weights")[0]
SMALL = " model.hidden=8 model.layers=1 training.epochs=1"


def test_the_commands_on_graphs(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        split = "valset" if number == 3 else "trainset"
        write(tmp_path / "stage" / split / f"event{number:09d}.pyg.gz", columns(number), batch=True)
    found = re.findall(r"```sh\n(.*?)```", ON_GRAPHS, flags=re.DOTALL)
    commands = [line for block in found for line in block.splitlines()]
    assert len(commands) == 5
    trained = [line + SMALL if line.startswith("bigtrk train") else line for line in commands]
    run_in_one(trained, tmp_path)
    scored = load(tmp_path / "scored" / "valset" / "event000000003.pyg")
    assert torch.equal(scored["edge_index"], columns(3)["edge_index"])
    assert ((scored["edge_scores"] > 0) & (scored["edge_scores"] < 1)).all()
    for_training = load(tmp_path / "mine" / "trainset" / "event000000001.pyg")
    assert "edge_scores" not in for_training
