"""`bigtrk plan --choose` as a user runs it: its table, its commands, its refusals."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.graphs import random_graph, write_graphs
from tests.programs import Run, refusal_of

Ask = Callable[[list[str]], Any]
SMALL = ["model.hidden=16", "model.layers=2"]
SIZES = ["--nodes", "20000", "--edges", "400000", "--machine", "cpu"]


@pytest.fixture
def ask(run_program: Run) -> Ask:
    def ask(arguments: list[str]) -> Any:
        status, out, err = run_program(["bigtrk", "plan", "--choose", *arguments, "--json"])
        assert (status, err) == (0, "")
        return json.loads(out)

    return ask


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("choice") / "my graphs"
    write_graphs(folder, [random_graph(seed, 3000, 60_000) for seed in range(2)])
    return folder


def test_sizes_alone_give_both_commands(ask: Ask) -> None:
    command = [*SIZES, "--ranks", "4", "--memory", "0.8", *SMALL]
    answer = ask(command)
    assert answer["choice"] == answer["options"][-1]
    assert [row["fits"] for row in answer["options"][:-1]] == [False] * (len(answer["options"]) - 1)
    assert answer["choice"]["memory"] <= answer["budget_bytes"] <= 0.9 * 0.8 * 2**30
    cutting, training = map(shlex.split, answer["commands"])
    sectors = answer["choice"]["sectors"]
    assert cutting[:3] == ["python", "-m", "partition"]
    assert cutting[-2:] == ["--parts", str(sectors)]
    assert training[:4] == ["torchrun", "--nproc-per-node", "4", "bigtrk/train.py"]
    assert f'data.train=["{cutting[4]}"]' in training
    assert f"training.memory_gib={answer['budget_bytes'] / 2**30:.3f}".rstrip("0") in training
    assert ask(command) == answer


def test_folders_are_cut_and_trained_side_by_side(graphs: Path, run_program: Run, ask: Ask) -> None:
    # What is recomputed is said: with less, more sectors of a rank would fit, too.
    wide = ["model.hidden=256", "model.layers=2", "model.recompute=chunk", "--machine", "cpu"]
    wide += ["data.train=[elsewhere]"]
    command = [str(graphs), "--ranks", "2", "--memory", "9", *wide]
    answer = ask(command)
    cutting, training = map(shlex.split, answer["commands"])
    assert cutting == ["python", "-m", "partition", str(graphs), f"{graphs}-in-2", "--parts", "2"]
    assert f'data.train=["{graphs}", "{graphs}-in-2"]' in training
    assert "data.train=[elsewhere]" not in training
    assert run_program(["bigtrk-partition", *cutting[3:], "--workers", "1"])[0] == 0
    # What is cut is not cut again.
    command = [f"{graphs}-in-2", "--ranks", "2", "--memory", "9", *wide]
    again = ask(command)
    assert len(again["commands"]) == 1
    assert {row["sectors"] for row in again["options"]} == {1}
    assert again["choice"]["parts"] in (1, 2)


def test_events_are_those_of_the_configuration(graphs: Path, tmp_path: Path, ask: Ask) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"data": {"train": [str(graphs)]}, "engine": {"name": "fsdp2"}}))
    command = [str(file), "--ranks", "1", "--memory", "9", *SMALL, "--machine", "cpu"]
    answer = ask(command)
    assert answer["events"]["number"] == 2
    training = shlex.split(answer["commands"][-1])
    assert training[:5] == ["torchrun", "--nproc-per-node", "1", "bigtrk/train.py", str(file)]
    assert not [word for word in training if word.startswith("engine.")]


def test_torchrun_starts_any_engine_and_hosts_are_counted(ask: Ask) -> None:
    command = [*SIZES, "--ranks", "8", "--memory", "4", *SMALL, "engine.name=deepspeed"]
    training = ask(command)["commands"][-1]
    assert training.startswith("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint FIRST_HOST")
    assert "--nproc-per-node 4 bigtrk/train.py" in training
    command = [*SIZES, "--ranks", "8", "--memory", "4", *SMALL]
    training = ask([*command, "--ranks-per-node", "8"])["commands"][-1]
    assert training.startswith("torchrun --nproc-per-node 8 bigtrk/train.py")
    training = ask([*command, "training.memory_gib=1"])["commands"][-1]
    assert training.count("training.memory_gib=") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--try"], "--try needs --choose"),
        (["--choose", "--measured", "run"], "--choose compares memory, not seconds"),
        (["--calibrate"], "'bigtrk plan --calibrate' was removed; use bigtrk plan --choose --try"),
        (["--check"], "'bigtrk plan --check' was removed; use bigtrk plan --measured RUN"),
        (["--allow-bf16"], "'bigtrk plan --allow-bf16' was removed; set model.precision=bf16"),
        (["--choose", "--ranks", "1,2"], "must be one number"),
        (["--choose", "--ranks", "2"], "needs the memory per rank"),
        (["--choose", "--ranks", "2", "--memory", "0.2"], "GiB are needed, with model.recompute="),
        (
            ["--choose", "--ranks", "7", "--memory", "4"],
            "--ranks 7: is not a multiple of the 4 ranks per host; give a multiple of 4",
        ),
        (["--choose", "--memory", "4", "sampling.method=shadow"], "plan counts whole events"),
    ],
)
def test_bad_questions_end_in_one_line(arguments: list[str], said: str, run_program: Run) -> None:
    err = refusal_of(run_program(["bigtrk", "plan", *SIZES, *SMALL, *arguments]))
    assert said in err
    assert len(err.splitlines()) == 1
