"""Every command of the tutorial, in its order; those of its first two blocks are the README's."""

import json
import re
from pathlib import Path

import pytest

from tests.programs import CHECKOUT, Run, run_in_one, run_shell

TUTORIAL = (CHECKOUT / "docs" / "tutorial.md").read_text()
COMMANDS = "".join(re.findall(r"```sh\n(.*?)```", TUTORIAL, flags=re.DOTALL)).splitlines()
ELSEWHERE = ["make demo", ". .venv/bin/activate"]


@pytest.mark.slow  # `make demo` and other tests run most of these commands; they take half a minute
def test_the_tutorial(workdir: Path, run_program: Run) -> None:
    """The last commands run here, where torch is imported already."""
    assert COMMANDS[:2] == ELSEWHERE
    assert all(command in (CHECKOUT / "README.md").read_text() for command in ELSEWHERE)
    commands = COMMANDS[2:]
    (launch,) = (one for one in commands if one.startswith("torchrun "))
    printed = run_in_one(commands[: commands.index(launch)], workdir)
    line = r"epoch 5/5  train loss (\S+)  validation: loss (\S+)  efficiency (\S+)"
    (shown,), (found,) = (re.findall(line, text) for text in (TUTORIAL, printed))
    for number, expected, rounding in zip(found, shown, (0.05, 0.1, 0.05), strict=True):  # as told
        assert float(number) == pytest.approx(float(expected), rel=rounding)
    run_shell(launch, workdir)
    for command in commands[commands.index(launch) + 1 :]:
        status, out, error = run_program(command.split())
        assert (status, bool(out)) == (0, True), error
    assert 'class="plot"' in (workdir / "evaluation.html").read_text()
    assert 'class="plot"' in (workdir / "report.html").read_text()
    whole, cut = losses(workdir / "runs" / "0001"), losses(workdir / "runs" / "0002")
    assert len(whole) == 8 * 5
    # "The losses of both runs are the same apart from rounding", which Adam magnifies: to 0.8 %
    # in the 25th step.
    assert cut[:20] == pytest.approx(whole[:20], rel=1e-2)
    assert cut[:5] == pytest.approx(whole[:5], rel=1e-4)


def losses(run: Path) -> list[float]:
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["kind"] == "step"]
