"""Reading run folders: what is missing, broken or half-written."""

from pathlib import Path

import pytest

from bigtrk.disk.files import write_json
from bigtrk.errors import InputError
from bigtrk.records.metrics import MeanEdgeMetrics, MetricsRecord
from bigtrk.records.run_folder import append_metrics, labels, read_epochs, read_run
from tests.present import present
from tests.reports.run_folders import (
    MakeRun,
    epoch_record,
    evaluation_record,
    run_writer,
    step_record,
)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    return run_writer(tmp_path)


def test_reads_what_the_trainer_wrote(make_run: MakeRun) -> None:
    run = read_run(make_run(evaluation=evaluation_record()))
    assert run.record.world_size == 1
    assert run.steps[1].routes == {"event2": 1, "event3": 2}
    assert [step.step for step in run.steps] == list(range(9))
    assert [epoch.seconds for epoch in run.epochs] == [4.0, 2.0, 1.0]
    assert present(run.epochs[0].validation).purity is None
    (evaluation,) = run.evaluations
    assert present(evaluation.tracks).matching[0].n_matched == 121


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        read_run(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file: is a file; name the folder of a run"):
        read_run(tmp_path / "file")
    with pytest.raises(InputError, match=r"holds no run\.json"):
        read_run(tmp_path)
    write_json(tmp_path / "run.json", {"format": 1, "world_size": 1})
    with pytest.raises(InputError, match=r"run\.json: key 'engine' is missing"):
        read_run(tmp_path)


def with_line(folder: Path, line: str) -> Path:
    """The run with a line that no trainer wrote."""
    with (folder / "metrics.jsonl").open("a") as lines:
        lines.write(line)
    return folder


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"kind": "step", ', "is not valid JSON"),
        ('{"kind": "step", "epoch": 0}', "key 'step' is missing"),
        ("[1]", "is not a JSON object"),
        ('"step"', "is not a JSON object"),
    ],
)
def test_broken_line_names_file_and_line(make_run: MakeRun, line: str, complaint: str) -> None:
    folder = with_line(make_run(lines=[step_record(0)]), line + "\n")
    append_metrics(folder, step_record(2))
    with pytest.raises(InputError, match=rf"metrics\.jsonl, line 2: {complaint}"):
        read_run(folder)


def test_half_written_last_line_is_left_aside(make_run: MakeRun) -> None:
    folder = make_run(lines=[step_record(0), step_record(1)])
    whole = (folder / "metrics.jsonl").read_bytes()
    for end in range(whole.index(b"\n") + 1, len(whole) - 1):
        (folder / "metrics.jsonl").write_bytes(whole[:end])
        assert [step.step for step in read_run(folder).steps] == [0]
    (folder / "metrics.jsonl").unlink()
    run = read_run(folder)
    assert (run.steps, run.epochs, read_epochs(folder)) == ((), (), ())


def test_later_line_replaces_earlier_after_a_resume(make_run: MakeRun) -> None:
    lines: list[MetricsRecord] = [step_record(0), step_record(1, loss=0.9), epoch_record(0, 4.0)]
    lines += [step_record(1, loss=0.1), epoch_record(0, 3.0)]
    run = read_run(make_run(lines=lines))
    assert [step.loss for step in run.steps] == [step_record(0).loss, 0.1]
    assert [epoch.seconds for epoch in run.epochs] == [3.0]


def test_epochs_alone_are_those_of_the_whole_run(make_run: MakeRun) -> None:
    again = epoch_record(1, 9.0)
    folder = make_run(lines=[step_record(0), epoch_record(0), epoch_record(1), again])
    with_line(folder, '{"kind": "step", "of": "a version to come"}\n{"kind": "epoch", "epo')
    assert read_epochs(folder) == (epoch_record(0), again)
    with_line(folder, '{"kind": "epoch"}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 6: is not valid JSON"):
        read_epochs(folder)


def test_labels_tell_runs_of_one_name_apart(make_run: MakeRun) -> None:
    runs = [read_run(make_run(name)) for name in ("x/0001", "y/0001", "y/0002")]
    named = labels(runs)
    assert named[2] == "0002"
    assert named[0].endswith("x/0001")
    assert len(set(named)) == 3


def test_undefined_metrics_in_words() -> None:
    assert MeanEdgeMetrics().undefined == MeanEdgeMetrics(events_skipped=0.0).undefined == ""
    assert MeanEdgeMetrics(events_skipped=1.0).undefined.startswith("1 event lacks a metric")
    several = MeanEdgeMetrics(events_skipped=3.0, events_without_auc=2.0).undefined
    assert (
        several
        == "3 events lack a metric, 2 AUC: undefined unless target and other edges are there"
    )
