"""The card of a real training: there when it has ended, right in what it tells to type, and new
after an evaluation.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from bigtrk.reports.model_card import CARD
from tests.programs import Run

SMALL = "model.hidden=8 model.layers=2 training.epochs=1"


def codes(card: Path) -> dict[str, str]:
    """Returns the code that a card tells to type, by its language."""
    blocks = MarkdownIt("commonmark").parse(card.read_text("utf-8"))
    return {block.info: block.content for block in blocks if block.type == "fence"}


def test_what_a_card_tells_to_type_works(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, run_program: Run
) -> None:
    for typed in (
        "bigtrk simulate events --events 3 --particles 60",
        "bigtrk build events graphs",
        f"bigtrk/train.py data.train=[graphs] {SMALL}",
    ):
        status, _, errors = run_program(typed.split())
        assert status == 0, errors
    run = workdir / "runs" / "0001"
    before = (run / CARD).read_text("utf-8")
    assert "It was not evaluated" in before
    assert "epochs 1" in before
    assert "**graphs built from the formats**: trackml" in before
    assert re.search(r"hold \d+\.\d\d % of the true edges", before)
    monkeypatch.chdir(run)
    told = codes(run / CARD)
    names: dict[str, Any] = {}
    exec(told["python"].replace("GRAPHS", str(workdir / "graphs")), names)
    assert names["scores"].shape == (names["graph"].n_edges,)
    assert 0 <= names["scores"].min() <= names["scores"].max() <= 1
    for line in told["sh"].splitlines():
        typed = line.replace("GRAPHS", "../../graphs").replace("TRACKS", "../../tracks")
        status, _, errors = run_program(shlex.split(typed))
        assert status == 0, errors
    assert list((workdir / "tracks").glob("*.parquet"))
    after = (run / CARD).read_text("utf-8")
    assert "It was not evaluated" not in after
    assert f"### Evaluation on 1 event of {workdir.resolve()}/graphs".replace("_", "\\_") in after
    assert "| track efficiency |" in after
