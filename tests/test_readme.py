"""Every command of the README, as a newcomer would type it."""

import json
import re
from pathlib import Path

import pytest

from tests.programs import CHECKOUT, free_port, run_shell

README = (CHECKOUT / "README.md").read_text()


def blocks() -> list[list[str]]:
    """The commands of each shell block, without comments."""
    found = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    lines = [[line.split("#")[0].strip() for line in block.splitlines()] for block in found]
    return [[line for line in block if line] for block in lines]


def with_free_port(command: str) -> str:
    return command.replace("deepspeed ", f"deepspeed --master_port {free_port()} ", 1)


def test_the_readme_has_the_blocks_tested_here() -> None:
    assert [block[0] for block in blocks()] == ["make demo", ". .venv/bin/activate"]
    # `make test` is what runs this.
    assert blocks()[0] == ["make demo", "make test"]


@pytest.mark.slow
def test_the_examples_of_the_help(tmp_path: Path) -> None:
    """Each works after those before it; there are fewer and smaller events here."""
    for command in ("simulate", "build", "partition", "train", "evaluate", "report"):
        told = run_shell(f"COLUMNS=200 bigtrk {command} --help", tmp_path)
        (example,) = re.findall("Example: (.*)", told)
        run_shell(
            example.replace("--events 8 --particles 1000", "--events 3 --particles 40"), tmp_path
        )


# Tests of its own, of their studies, train such series in `make test`: these take a minute.
@pytest.mark.slow
def test_the_series(tmp_path: Path) -> None:
    run_shell("bigtrk simulate events --events 2 --particles 30", tmp_path)
    for command in blocks()[1][1:3]:
        run_shell(command, tmp_path)
    scale = "bigtrk scale weak graphs --ranks 1,2 --events 100"
    assert scale in README
    small = f"{scale[:-2]} --validation 0 --repeats 1 model.hidden=8 training.epochs=1"
    assert "predicted: from a measured step" in " ".join(run_shell(small, tmp_path).split())


# `make demo` runs nearly the same commands; these take two minutes.
@pytest.mark.slow
def test_the_main_job(tmp_path: Path) -> None:
    """The commands on small events of one's own; the first activates an environment, as here."""
    (tmp_path / "bigtrk").symlink_to(CHECKOUT / "bigtrk")
    run_shell("bigtrk simulate events --events 2 --particles 30", tmp_path)
    printed = ""
    for command in blocks()[1][1:]:
        printed = run_shell(with_free_port(command), tmp_path)
    assert "DeepSpeed ZeRO-1" in printed
    assert "bigtrk/train.py --resume runs/0001" in README
    again = "deepspeed --num_gpus 2 bigtrk/train.py --resume runs/0001 training.epochs=11"
    assert "epoch 11/11" in run_shell(with_free_port(again), tmp_path)
    evaluate = "bigtrk evaluate runs/0001 graphs --tracks --html evaluation.html"
    assert evaluate in README
    assert "What limits the tracks" in run_shell(evaluate, tmp_path)
    assert "Track efficiency" in (tmp_path / "evaluation.html").read_text()
    assert "bigtrk resume runs/0001" in README
    alone = run_shell("bigtrk resume runs/0001 training.epochs=12 engine.name=ddp", tmp_path)
    assert "written by DeepSpeed ZeRO-1 on 2 ranks" in alone
    assert "epoch 12/12" in alone
    assert "bigtrk watch runs/0001" in README
    assert "finished: all epochs are trained" in run_shell("bigtrk watch runs/0001", tmp_path)
    doctor = json.loads(run_shell("bigtrk doctor --json", tmp_path))
    assert doctor["ready"]
