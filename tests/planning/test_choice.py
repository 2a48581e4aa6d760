"""`bigtrk plan --choose` as a user runs it: its table, its commands, its refusals."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from bigtrk.graphs.storage.event_folder import write_manifest
from bigtrk.graphs.storage.graph_folder import write_graph
from tests.distributed.graphs import random_graph
from tests.programs import run_here

SMALL = ["model.hidden=16", "model.layers=2"]
SIZES = ["--nodes", "20000", "--edges", "400000", "--machine", "cpu"]


def ask(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    command = ["bigtrk", "plan", "--choose", *arguments, "--json"]
    status, out, err = run_here(command, monkeypatch, capsys)
    assert (status, err) == (0, "")
    return json.loads(out)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("choice") / "my graphs"
    made = [random_graph(seed, 3000, 60_000) for seed in range(2)]
    for graph in made:
        write_graph(folder, graph, {"nodes": graph.n_nodes, "edges": graph.n_edges})
    write_manifest(folder, "graphs", {}, [graph.name for graph in made])
    return folder


def test_sizes_alone_give_both_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*SIZES, "--ranks", "4", "--memory", "0.8", *SMALL]
    answer = ask(command, monkeypatch, capsys)
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
    assert ask(command, monkeypatch, capsys) == answer


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--try"], "--try is for --choose"),
        (["--choose", "--measured", "run"], "--choose compares no seconds"),
        (["--calibrate"], "plan --calibrate is gone; use bigtrk plan --choose --try"),
        (["--check"], "plan --check is gone; use bigtrk plan --measured RUN"),
        (["--allow-bf16"], "plan --allow-bf16 is gone; set model.precision=bf16"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(
    options: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, err = run_here(["bigtrk", "plan", *SIZES, *options], monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_folders_are_cut_and_trained_side_by_side(
    graphs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # What is recomputed is said: with less, more sectors of a rank would fit, too.
    wide = ["model.hidden=256", "model.layers=2", "model.recompute=chunk", "--machine", "cpu"]
    wide += ["data.train=[elsewhere]"]
    command = [str(graphs), "--ranks", "2", "--memory", "9", *wide]
    answer = ask(command, monkeypatch, capsys)
    cutting, training = map(shlex.split, answer["commands"])
    assert cutting == [
        *["python", "-m", "partition"],
        str(graphs),
        f"{graphs}-in-2",
        "--parts",
        "2",
    ]
    assert f'data.train=["{graphs}", "{graphs}-in-2"]' in training
    assert "data.train=[elsewhere]" not in training
    done = run_here(["bigtrk-partition", *cutting[3:], "--workers", "1"], monkeypatch, capsys)
    assert done[0] == 0
    # What is cut is not cut again.
    command = [f"{graphs}-in-2", "--ranks", "2", "--memory", "9", *wide]
    again = ask(command, monkeypatch, capsys)
    assert len(again["commands"]) == 1
    assert {row["sectors"] for row in again["options"]} == {1}
    assert again["choice"]["parts"] in (1, 2)


def test_events_are_those_of_the_configuration(
    graphs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"data": {"train": [str(graphs)]}, "engine": {"name": "fsdp2"}}))
    command = [str(file), "--ranks", "1", "--memory", "9", *SMALL, "--machine", "cpu"]
    answer = ask(command, monkeypatch, capsys)
    assert answer["events"]["number"] == 2
    training = shlex.split(answer["commands"][-1])
    assert training[:5] == ["torchrun", "--nproc-per-node", "1", "bigtrk/train.py", str(file)]
    assert not [word for word in training if word.startswith("engine.")]


def test_torchrun_starts_any_engine_and_hosts_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*SIZES, "--ranks", "8", "--memory", "4", *SMALL, "engine.name=deepspeed"]
    training = ask(command, monkeypatch, capsys)["commands"][-1]
    assert training.startswith("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint FIRST_HOST")
    assert "--nproc-per-node 4 bigtrk/train.py" in training
    command = [*SIZES, "--ranks", "8", "--memory", "4", *SMALL]
    training = ask([*command, "--ranks-per-node", "8"], monkeypatch, capsys)["commands"][-1]
    assert training.startswith("torchrun --nproc-per-node 8 bigtrk/train.py")
    training = ask([*command, "training.memory_gib=1"], monkeypatch, capsys)["commands"][-1]
    assert training.count("training.memory_gib=") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*SIZES, "--ranks", "1,2"], "give one number"),
        ([*SIZES, "--ranks", "2"], "give the memory of a rank"),
        ([*SIZES, "--ranks", "2", "--memory", "0.3"], "the least that would do is"),
        ([*SIZES, "--ranks", "7", "--memory", "4"], "7 ranks do not fill hosts of 4"),
        (["nowhere", "--ranks", "2", "--memory", "4"], "nowhere: no such folder"),
        (
            [*SIZES, "--ranks", "2", "--memory", "4", "sampling.method=shadow"],
            "is for whole events",
        ),
    ],
)
def test_bad_questions_end_in_one_line(
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["bigtrk", "plan", "--choose", *arguments, *SMALL]
    status, out, err = run_here(command, monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
