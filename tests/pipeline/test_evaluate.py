"""`bigtrk evaluate` of a pipeline says where particles of other events are lost."""

import json
import shutil
from pathlib import Path

import pytest

from tests.pipeline.small_pipeline import Typed
from tests.programs import Run, output_of, refusal_of
from tests.test_bad_input import one_line


@pytest.fixture
def evaluated(folder: Path, tmp_path: Path) -> Path:
    """Copies the pipeline, in which evaluations are written."""
    out = tmp_path / "mine"
    shutil.copytree(folder / "out", out, ignore=shutil.ignore_patterns("graphs"))
    return out


@pytest.mark.usefixtures("workdir")
def test_losses_add_up_to_what_reconstructed_tracks_are_judged_to_be(
    folder: Path, evaluated: Path, typed: Typed
) -> None:
    mine, others = str(evaluated), str(folder / "others")

    found = typed("evaluate", mine, others, "--pt-min", "0.7", "--html", "page.html")
    made = typed("reconstruct", mine, others, "tracks")
    judged = typed("score", "tracks", others, "--pt-min", "0.7")
    assert found["tracks"] == {key: judged[key] for key in ("trackml_score", "matching")}
    [strict] = [r for r in judged["matching"] if (r["style"], r["mode"]) == ("ATLAS", "strict")]
    assert sum(found["losses"].values()) == strict["n_particles"]
    assert found["losses"]["found"] == strict["n_reconstructed"] > 50
    stages = {stage["stage"]: stage for stage in found["stages"]}
    for stage in ("radius", "filter"):
        reconstructed = sum(event["edges"][stage] for event in made["events"].values())
        assert stages[stage]["edges"] == reconstructed
    assert stages["event"]["target_edges"] >= stages["radius"]["target_edges"] > 0
    assert (found["events"], found["events_left_out"]) == (2, 0)
    assert "Where particles are lost" in Path("page.html").read_text()
    again = typed("evaluate", mine, others)
    assert len([*(evaluated / "evaluations").glob("others-*Z*.json")]) == 2, "none is overwritten"
    [reported] = typed("report", mine, "--html", "report.html")["pipelines"]
    assert reported["evaluations"] == [again]
    assert 'class="plot"' in Path("report.html").read_text()


def test_events_that_stages_were_trained_on_are_left_out(
    folder: Path, evaluated: Path, tmp_path: Path, run_program: Run
) -> None:
    """The last two of six trained nothing; where all were trained on, they are evaluated."""
    command = ["bigtrk", "evaluate", str(evaluated), str(folder / "events"), "--json"]
    _, printed, _ = run_program(command)
    found = json.loads(printed)
    counts = ("events", "events_trained_on", "events_left_out")
    assert [found[key] for key in counts] == [2, 0, 4]
    trained = tmp_path / "trained"
    trained.mkdir()
    for file in (folder / "events").glob("event000000000-*"):
        shutil.copy(file, trained)
    printed = output_of(run_program(["bigtrk", "evaluate", str(evaluated), str(trained)]))
    assert "trained on 1 of these events" in " ".join(printed.split())


BAD_EVALUATIONS: list[tuple[list[str], dict[str, str], str]] = [
    (["hits"], {}, "has no truth, which an evaluation needs; add"),
    (["others", "--builder", "components"], {}, "is a pipeline, which has its own track builder"),
    (["out"], {}, "holds no events"),
    (["others"], {"RANK": "0", "WORLD_SIZE": "2"}, "a single process evaluates a pipeline; start"),
]


@pytest.mark.parametrize(("words", "environment", "told"), BAD_EVALUATIONS)
def test_an_evaluation_that_cannot_be_is_told_in_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_program: Run,
    words: list[str],
    environment: dict[str, str],
    told: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    assert told in one_line(refusal_of(run_program(["bigtrk", "evaluate", "out", *words])))
    assert not (folder / "out" / "evaluations").exists()
