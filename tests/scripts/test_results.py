"""Tests what scripts publish and what they leave alone, in a git repository of their own."""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bigtrk.errors import InputError
from scripts import results
from scripts.results import Results, Summary, add_options

SUMMARY: Summary = {"cases": 3, "failed": 0, "exceeded": {"memory": 1.1}, "speedup": None}
# Every script that publishes, with the arguments that it cannot do without.
SCRIPTS = {
    "bench.bench_attention": ["graph.npz"],
    "bench.bench_checkpoint": [],
    "bench.bench_hot_path": [],
    "gpu.gpu_suite": [],
    "bench.kernel_traffic": [],
    "bench.measure_sharding": [],
    "faults.inject_faults": ["--rounds=1"],
    "faults.soak": [],
    "parity.parity_matrix": [],
    "parity.parity_models": [],
    "parity.unchanged_training": [],
    "parity.whole_and_sectors": ["events"],
    "physics.builders_table": ["pipeline", "events"],
    "studies.gradient_audit": ["run", "sectors"],
    "studies.sampling_study": ["graphs", "sectors"],
    "physics.graph_builders_table": ["pipeline", "events", "test", "out"],
    "physics.physics_full": ["out"],
    "physics.muon": ["graphs"],
    "physics.physics_heptrkx": ["graphs"],
    "physics.physics_pipeline": ["out"],
    "physics.search_methods": ["graphs"],
    "physics.simulator_residuals": ["event1000"],
    "physics.stitched_tracks": ["pipeline", "events"],
    "rehearsals.rehearse_all": [],
    "sampling.bench_balance": ["graphs"],
    "sampling.bench_sampling": ["graphs"],
    "sampling.bench_shadow_epochs": ["graphs"],
    "scaling.exchange_cost": ["sectors"],
    "scaling.partition_volumes": [],
    "scaling.scaling_curves": [],
    "scaling.scaling_series": ["graphs"],
}


def git(folder: Path, *arguments: str) -> str:
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *author, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean repository with a published file, which the scripts take for theirs."""
    folder = tmp_path / "checkout"
    (folder / "docs/results").mkdir(parents=True)
    (folder / "docs/results/gpu.json").write_text("{}\n")
    (folder / ".gitignore").write_text("/runs/\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")
    monkeypatch.setattr(results, "CHECKOUT", folder)
    monkeypatch.chdir(tmp_path)
    return folder


def opened(*arguments: str, name: str = "gpu") -> Results:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return Results(name, parser.parse_args(arguments))


def written(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_unclean_tree_is_refused_before_anything_is_measured(
    script: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "new.py").touch()
    monkeypatch.setattr(sys, "argv", ["script", *SCRIPTS[script], "--publish"])
    with pytest.raises((InputError, SystemExit)) as refused:
        importlib.import_module(f"scripts.{script}").main()
    said = refused.value if isinstance(refused.value, InputError) else refused.value.__context__
    assert "not committed" in str(said)
    assert git(checkout, "status", "--porcelain") == "?? new.py"


@pytest.mark.parametrize(
    "script", ["bench.bench_attention", "bench.bench_hot_path", "parity.unchanged_training"]
)
def test_what_is_measured_quickly_is_not_published(
    script: str,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *SCRIPTS[script], "--quick", "--publish"])
    with pytest.raises(SystemExit):
        importlib.import_module(f"scripts.{script}").main()
    assert "not allowed with" in capsys.readouterr().err
    assert git(checkout, "status", "--porcelain") == ""


def test_a_changed_file_is_refused_like_a_new_one(checkout: Path) -> None:
    (checkout / "docs/results/gpu.json").write_text("{ }\n")
    with pytest.raises(InputError, match="git status"):
        opened("--publish")


@pytest.mark.parametrize("outer", [True, False])
def test_without_a_repository_of_its_own_nothing_is_published(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, outer: bool
) -> None:
    unpacked = (checkout if outer else checkout.parent) / "runs/unpacked"
    unpacked.mkdir(parents=True)
    monkeypatch.setattr(results, "CHECKOUT", unpacked)
    with pytest.raises(InputError, match="no git checkout"):
        opened("--publish")
    opened("--output", "found.json").write(SUMMARY)
    content = written(Path("found.json"))
    assert (content["commit"], content["clean"]) == (None, None)


def test_a_published_file_names_its_commit_and_ends_in_the_last_line(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A whole script, whose parts have been run."""
    gpu_suite = importlib.import_module("scripts.gpu.gpu_suite")
    monkeypatch.setattr(gpu_suite, "has_card", lambda: True)
    monkeypatch.setattr(gpu_suite, "run_parts", lambda *_: {"radius": {"same": True}})
    monkeypatch.setattr(gpu_suite, "summary", lambda _: SUMMARY)
    monkeypatch.setattr(sys, "argv", ["gpu_suite.py", "--publish", "--work", "parts"])
    gpu_suite.main()
    content = written(checkout / "docs/results/gpu.json")
    assert content["commit"] == git(checkout, "rev-parse", "HEAD")
    assert len(content["commit"]) == 40
    assert content["clean"] is True
    assert content["radius"] == {"same": True}
    assert content["machine"]["cores"] >= 1
    assert content["software"]["torch"] == torch.__version__
    last = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(last) == content["summary"] == SUMMARY


@pytest.mark.parametrize("arguments", [[], ["--output", "found.json"]])
def test_nothing_tracked_is_written_unless_it_is_published(
    checkout: Path, arguments: list[str]
) -> None:
    (checkout / "new.py").touch()
    opened(*arguments).write(SUMMARY, rows=[1])
    assert git(checkout, "status", "--porcelain") == "?? new.py"
    assert Path("found.json").exists() == bool(arguments)
    if arguments:
        content = written(Path("found.json"))
        assert content["commit"] == git(checkout, "rev-parse", "HEAD")
        assert content["clean"] is False
        assert content["rows"] == [1]


def commit(checkout: Path) -> None:
    git(checkout, "commit", "--quiet", "--allow-empty", "--message=second")


def change(checkout: Path) -> None:
    (checkout / "new.py").touch()


@pytest.mark.parametrize("meanwhile", [commit, change])
@pytest.mark.parametrize("output", [None, "found.json"])
def test_what_was_measured_while_the_tree_changed_is_kept_and_not_published(
    checkout: Path, meanwhile: Any, output: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring = opened("--publish", *(["--output", output] if output else []))
    began = git(checkout, "rev-parse", "HEAD")
    meanwhile(checkout)
    with pytest.raises(InputError, match="not published") as said:
        measuring.write(SUMMARY)
    place = Path(str(said.value).split()[-1])
    assert place == Path(output) if output else place.parent == checkout / "runs/unpublished"
    assert (written(place)["commit"], written(place)["clean"]) == (began, False)
    assert written(checkout / "docs/results/gpu.json") == {}
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == SUMMARY


def test_rehearsals_are_collected(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rehearsals that agree end in 0, those that differ in 1; one that fails is an error."""
    rehearse_all = importlib.import_module("scripts.rehearsals.rehearse_all")
    monkeypatch.setattr(rehearse_all, "FOLDER", checkout.parent)
    script = checkout.parent / "rehearse.sh"
    script.write_text("echo text; echo '{\"ranks\": 4}'; exit $1\n")
    for status, ended_with in (("0", 0), ("1", 1), ("2", InputError)):
        launches = {"agrees": ("rehearse.sh", "0"), "other": ("rehearse.sh", status)}
        monkeypatch.setattr(rehearse_all, "LAUNCHES", launches)
        monkeypatch.setattr(sys, "argv", ["rehearse_all.py"])
        with pytest.raises((SystemExit, InputError)) as ended:
            rehearse_all.main()
        found = ended.value.code if isinstance(ended.value, SystemExit) else InputError
        assert found == ended_with
        last = capsys.readouterr().out.splitlines()[-1:]
        expected = {"agrees": {"ranks": 4}, "other": {"ranks": 4}}
        assert [json.loads(line) for line in last] == [expected] * (status != "2")
