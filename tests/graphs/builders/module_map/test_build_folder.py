"""`bigtrk build` with a module map: learnt, kept beside the graphs, and used again."""

from pathlib import Path

import pytest

from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.builders.module_map import read_module_map
from bigtrk.graphs.storage.graph_folder import GraphFolder
from tests.programs import run_here
from tests.test_bad_input import one_line

BUILD = ["bigtrk", "build", "events"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    simulate_folder(folder / "events", range(3), 80, seed=1, detectors=None)
    return folder


def test_a_learnt_map_builds_the_same_again(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    status, out, _ = run_here([*BUILD, "learnt", "--learn-module-map"], monkeypatch, capsys)
    assert status == 0
    assert "judge it on others" in out
    given = ["--module-map", "learnt/module_map.safetensors"]
    assert run_here([*BUILD, "again", *given], monkeypatch, capsys)[0] == 0
    wider = [*given, "--module-map-windows", "sigma"]
    assert run_here([*BUILD, "sigma", *wider], monkeypatch, capsys)[0] == 0
    learnt, again, sigma = (GraphFolder(made / name) for name in ("learnt", "again", "sigma"))
    assert learnt.manifest["parameters"] == again.manifest["parameters"]
    assert learnt.manifest["parameters"]["module_map_windows"] == "minmax"
    assert sigma.manifest["parameters"] == {
        **learnt.manifest["parameters"],
        "module_map_windows": "sigma",
    }
    for name in learnt.events:
        assert learnt.record(name)["digests"] == again.record(name)["digests"]
        assert learnt.record(name)["edges"] > 0
    files = [made / name / "module_map.safetensors" for name in ("learnt", "again")]
    first, second = (read_module_map(file).digest() for file in files)
    assert first == second == learnt.manifest["parameters"]["module_map"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--module-map", "nothing"], "nothing: no such file"),
        (["--module-map", "x", "--learn-module-map"], "exclude each other; give one"),
        (["--learn-windows", "--learn-module-map"], "exclude each other; give one"),
        (["--true-edges", "--module-map", "x"], "exclude each other; give one"),
        (["--module-map-windows", "sigma"], "is of --module-map; give its file, too"),
        (["--learn-module-map", "--pt-min", "1000"], "no particle above 1000 GeV has three hits"),
    ],
)
def test_bad_input_is_named(
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(made)
    status, _, errors = run_here([*BUILD, "out", *options], monkeypatch, capsys)
    assert status == 2
    assert told in " ".join(one_line(errors).split())
    assert not (made / "out").exists()
