"""Tests what scripts publish and what they leave alone, in a git repository of their own."""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bigtrk.errors import InputError
from scripts import results
from scripts.results import Results, Summary, add_options

SUMMARY: Summary = {"cases": 3, "failed": 0, "exceeded": {"memory": 1.1}, "speedup": None}


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
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened("--publish").write(SUMMARY, radius={"same": True})
    content = written(checkout / "docs/results/gpu.json")
    assert content["commit"] == git(checkout, "rev-parse", "HEAD")
    assert content["clean"] is True
    assert content["radius"] == {"same": True}
    assert {"machine", "software"} <= set(content)
    last = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(last) == content["summary"] == SUMMARY


def test_nothing_tracked_is_written_unless_it_is_published(checkout: Path) -> None:
    (checkout / "new.py").touch()
    opened().write(SUMMARY, rows=[1])
    assert not Path("found.json").exists()
    opened("--output", "found.json").write(SUMMARY, rows=[1])
    assert git(checkout, "status", "--porcelain") == "?? new.py"
    content = written(Path("found.json"))
    assert content["commit"] == git(checkout, "rev-parse", "HEAD")
    assert (content["clean"], content["rows"]) == (False, [1])


def commit(checkout: Path) -> None:
    git(checkout, "commit", "--quiet", "--allow-empty", "--message=second")


def change(checkout: Path) -> None:
    (checkout / "new.py").touch()


@pytest.mark.parametrize(("meanwhile", "output"), [(commit, None), (change, "found.json")])
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
