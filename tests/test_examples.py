"""The examples run as scripts from a folder outside of the checkout, on smaller events."""

import re
from pathlib import Path

import pytest

from tests.programs import CHECKOUT, run_python

# The line of each with its sizes, smaller ones, and what it says at its end.
EXAMPLES = {
    "first_tracks": (
        "EVENTS, PARTICLES, EPOCHS = 20, 2000, 10",
        "EVENTS, PARTICLES, EPOCHS = 4, 60, 1",
        r"\d+ tracks; [\d.]+% of \d+ particles found",
    ),
    "your_own_model": (
        "EVENTS, PARTICLES, EPOCHS, SECTORS = 6, 500, 3, 4",
        "EVENTS, PARTICLES, EPOCHS, SECTORS = 3, 60, 1, 2",
        r"step 2: whole [\d.]+, in sectors [\d.]+\nmean score",
    ),
    "your_own_data": (
        "EVENTS, PARTICLES, EPOCHS = 16, 60, 12",
        "EVENTS, PARTICLES, EPOCHS = 16, 20, 12",
        r"\d+ tracks; (1[5-9]|20) of 20 particles have all their hits in one",
    ),
}


# It starts four ranks and a check of two models: half a minute.
SLOW = {"your_own_model": pytest.mark.slow}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SLOW.get(name, ())) for name in EXAMPLES]
)
def test_an_example(name: str, tmp_path: Path) -> None:
    sizes, smaller, told = EXAMPLES[name]
    code = (CHECKOUT / "examples" / f"{name}.py").read_text()
    assert code.count(f"\n{sizes}\n") == 1
    script = tmp_path / f"{name}.py"
    script.write_text(code.replace(sizes, smaller))
    done = run_python([script], tmp_path, MPLBACKEND="Agg")
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(told, done.stdout), done.stdout
    assert "Warning" not in done.stderr
