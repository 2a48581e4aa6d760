"""The least memory that a plan says would do, where nothing fits."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import CPU
from bigtrk.planning.plan import Question, make_plan
from bigtrk.planning.sizes import MiniBatches
from bigtrk.planning.tables import show_plan
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.routers import memory_of_cut


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("held", [None, 5e7])
@pytest.mark.parametrize("size", [EventSize(40_000, 800_000), EventSize(1_000, 4_000)], ids=str)
def test_where_nothing_fits_the_least_that_would_do_is_told(
    size: EventSize,
    files: bool,
    held: float | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the memory that is told the event fits, in as many sectors; with less it does not."""
    training = {"training": {"spill": str(tmp_path)}} if files else {}
    configuration = Configuration.model_validate({"model": {"layers": 2}, **training})
    sizes = [size]
    sampled = None if held is None else MiniBatches(sizes, held)
    asked = Question(configuration, sizes, [1, 2], 2, 1e6, CPU, sampled=sampled)
    plan = make_plan(asked)
    least = plan["least"]
    fits = make_plan(replace(asked, budget=least["bytes"]))
    assert (fits["smallest_parts"], fits["least"]) == (least["parts"], None)
    # The edges of the small event take less memory than the blocks they would travel in.
    assert fits["in_files"] == (files and size.edges > 4_000)
    short = make_plan(replace(asked, budget=least["bytes"] - 1))
    assert (short["smallest_parts"], short["least"]) == (None, least)
    assert make_plan(replace(asked, budget=None))["least"] is None
    written = memory_of_cut(least["bytes"], least["parts"])
    show_plan(plan, Console())
    assert f"the least that would do is {written}; --choose" in " ".join(
        capsys.readouterr().out.split()
    )
