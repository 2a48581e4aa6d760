"""Scaling series: what is trained, what is refused, what is taken up again, what SLURM gets."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bigtrk import user_code
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError
from bigtrk.machine import open_cores
from bigtrk.records.record import read_record
from bigtrk.records.run import End, RunRecord
from bigtrk.records.run_folder import write_run_record
from bigtrk.records.studies import SERIES, SeriesRecord
from bigtrk.reports.document import Document
from bigtrk.studies import launch
from bigtrk.studies.launch import resumable, train_logged
from bigtrk.studies.scaling import run_series as running
from bigtrk.studies.scaling.report import read_series
from bigtrk.studies.scaling.run_series import ScalingSeries, plan_series, run_series, slurm_script
from tests.distributed.graphs import random_graph
from tests.distributed.runs import write_in_sectors
from tests.programs import output_of, refusal_of, run_here
from tests.studies.search.stand_in_searches import write_checkpoint

SMALL = ("model.hidden=8", "model.layers=1", "training.epochs=2")
EMPTY = Path("empty.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine events, whole in `graphs` and in four sectors in `sectors`."""
    folder = tmp_path_factory.mktemp("events")
    (folder / EMPTY).touch()
    write_in_sectors(folder, [random_graph(seed, 30, 90) for seed in range(9)], 4)
    return folder


@pytest.fixture
def plan(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., ScalingSeries]:
    """Plans a series of up to 3 ranks in tmp_path/out, from the folder with the events."""
    monkeypatch.chdir(folder)

    def make(kind: Any = "weak", *arguments: str, **changes: Any) -> ScalingSeries:
        options = {"ranks": "1,3", "events": 2, "validation": 1, "repeats": 2, **changes}
        options.setdefault("folder", tmp_path / "out")
        options.setdefault("ranks_per_node", None)
        options.setdefault("host_cores", 6)
        given = arguments or ("graphs",)
        return plan_series(kind, given, EMPTY, **options)

    return make


def settings(arguments: Sequence[str]) -> dict[str, str]:
    """Returns the value that each key has in the end."""
    return dict(argument.split("=", 1) for argument in arguments if "=" in argument)


Plan = Callable[..., ScalingSeries]


def test_weak_series_grows_with_the_ranks(plan: Plan) -> None:
    runs = plan("weak", "graphs", "training.seed=5").runs()
    assert [(run.folder.name, run.ranks, run.seed) for run in runs] == [
        *(("ranks0001-1", 1, 5), ("ranks0003-1", 3, 5)),
        *(("ranks0001-2", 1, 6), ("ranks0003-2", 3, 6)),
    ]
    last = settings(runs[3].arguments)
    assert json.loads(last["data.train"]) == ["graphs"]
    assert (last["data.events"], last["data.validation"]) == ("6", "3")
    assert (last["training.events_per_step"], last["training.seed"]) == ("3", "6")
    assert last["run.folder"] == str(runs[3].folder)


def test_strong_series_trains_the_same_on_all_ranks(plan: Plan) -> None:
    first, second = (settings(run.arguments) for run in plan("strong", events=6, repeats=1).runs())
    assert (first["data.events"], first["data.validation"]) == ("6", "1")
    assert first["training.events_per_step"] == "3"
    del first["run.folder"], second["run.folder"]
    assert first == second


def test_configuration_file_is_passed_on(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("training: {seed: 3, events_per_step: 8}\n")
    run = plan("strong", "graphs", str(file), events=6).runs()[0]
    assert (run.arguments[0], run.seed) == (str(file), 3)
    assert settings(run.arguments)["training.events_per_step"] == "8"


@pytest.mark.parametrize(
    ("kind", "override", "changes", "message"),
    [
        ("weak", "", {"events": 3}, r"weak scaling needs 12 events \(3 ranks x \(3 to train on"),
        ("weak", "", {"events": 3}, r"are 9; make more \(bigtrk simulate events --events 12"),
        ("strong", "", {"events": 9}, r"strong scaling needs 10 events \(9 to train on \+ 1"),
        ("strong", "", {"events": 2}, r"--ranks 3: is more than the 2 events or sectors"),
        ("weak", "", {"ranks": "one"}, r"--ranks 'one': write numbers"),
        ("weak", "data.events=3", {}, "bigtrk scale sets data.events; use --events"),
        ("weak", "training.events_per_step=3", {}, "sets training.events_per_step; use --ranks"),
        ("weak", "sampling.method=shadow", {}, r"sampling\.method=shadow: .*; give 'strong"),
    ],
)
def test_bad_series_are_refused_before_anything_runs(
    plan: Plan, kind: str, override: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan(kind, "graphs", *override.split(), **changes)


def test_a_folder_holds_one_series(plan: Plan, tmp_path: Path) -> None:
    plan(ranks="2,3", repeats=1).open()
    plan("weak", "graphs", "run.price_per_device_hour=2").open()
    record = read_record(SeriesRecord, tmp_path / "out" / SERIES)
    assert (record.ranks, record.repeats, record.price_per_device_hour) == ((1, 3), 2, 2.0)
    for kind, arguments, changes, message in (
        ("weak", ("graphs",), {"events": 1}, r"another series \(events was 2, now 1\)"),
        ("weak", ("graphs", "model.hidden=8"), {}, r"model.hidden was 64, now 8"),
        ("strong", ("graphs",), {"events": 3}, r"another series \(kind "),
        ("weak", ("graphs",), {"ranks": "1,2"}, r"\(cores per rank was 2, now 3\)"),
    ):
        with pytest.raises(InputError, match=message):
            plan(kind, *arguments, **changes).open()
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"holds files, but no series\.json; choose another --out"):
        plan(folder=tmp_path / "else").open()


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of each training, which is not run; nor is there a report."""
    seen: list[str] = []

    def note(command: Sequence[str], log: Path, _: object) -> None:
        assert log.name == "train.log"
        seen.append(" ".join(command).partition("train.py ")[2])

    monkeypatch.setattr(user_code, "_allowed", set())  # other tests of this process name code
    monkeypatch.setattr(launch, "train_logged", note)
    monkeypatch.setattr(running, "series_report", lambda _: (Document("", "", [], [], []), ""))
    return seen


def checkpoint(run: Path, epochs_done: int, ended: End | None = None) -> None:
    """Writes what a run that was killed after a checkpoint, or has ended, leaves on disk."""
    write_checkpoint(run, epochs_done)
    config = {"training": {"epochs": 2}}
    write_run_record(run, RunRecord(world_size=1, engine="ddp", config=config, ended=ended))


def test_series_is_taken_up_where_it_ended(plan: Plan, tmp_path: Path, commands: list[str]) -> None:
    series = plan(ranks="1,2,3")
    series.open()
    done, begun, lost = (tmp_path / "out" / f"ranks000{n}-1" for n in (1, 2, 3))
    for run in (done, begun, lost):
        run.mkdir()
    (done / "model.safetensors").touch()
    checkpoint(begun, 1, "epochs")
    assert not resumable(begun)
    checkpoint(begun, 2)  # killed after its last checkpoint, it has its model to write
    assert resumable(begun)
    (lost / "half").touch()
    run_series(series)
    assert commands[0] == f"--resume {begun}"
    assert commands[1].endswith(f"run.folder={lost}")
    assert not (lost / "half").exists()
    assert len(commands) == 5


def test_a_run_that_is_being_written_is_left(
    plan: Plan, tmp_path: Path, commands: list[str]
) -> None:
    """Another launch of the series has not come to its first checkpoint."""
    series = plan(ranks="1", repeats=1)
    series.open()
    run = tmp_path / "out" / "ranks0001-1"
    run.mkdir()
    with FolderLock() as lock:
        lock.take(run)
        with pytest.raises(InputError, match="is writing there"):
            run_series(series)
        lock.check()
    assert commands == []


def test_failed_training_shows_the_end_of_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "ranks0002-1" / "train.log"
    epoch = "epoch 1/2  train loss 0.5  5.0 s"
    said = f"print('{epoch}', *range(20), 'the cause', sep='\\n'); import sys; sys.exit(3)"
    with pytest.raises(InputError) as raised:
        train_logged([sys.executable, "-c", said], log, os.environ)
    message = str(raised.value)
    assert message.startswith("ranks0002-1: the training ended with status 3; see ")
    assert str(log) in message
    out, err = capsys.readouterr()
    assert out == f"  {epoch}\n", "epochs are shown as they end"
    shown = [line.strip() for line in err.splitlines()]
    assert shown[-1] == "the cause"
    assert "12" not in shown


SBATCH = """#!/bin/bash
echo "$BIGTRK_ARRAY_RUN $BIGTRK_ARRAY_SEED $*" >> calls
"""


def test_slurm_script_submits_an_array_per_number_of_ranks(plan: Plan, tmp_path: Path) -> None:
    series = plan(
        "weak", "graphs", "training.seed=7", ranks="1,2,3", ranks_per_node=2, host_cores=None
    )
    (tmp_path / "sbatch").write_text(SBATCH)
    (tmp_path / "sbatch").chmod(0o755)
    subprocess.run(
        ["bash", "-c", slurm_script(series), "scale.sh", "--partition=gpu"],
        check=True,
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "BIGTRK_HOME": "/home/bigtrk"},
    )
    calls = (tmp_path / "calls").read_text().splitlines()
    batch = "--partition=gpu /home/bigtrk/scripts/slurm/generic.sbatch"
    for call, ranks, nodes, per_node in zip(calls, (1, 2, 3), (1, 1, 2), (1, 2, 2), strict=True):
        run = tmp_path / "out" / f"ranks000{ranks}"
        assert call.startswith(
            f"{run} 7 --array=1-2 --job-name=ranks000{ranks} --ntasks={ranks} --nodes={nodes} "
            f"--ntasks-per-node={per_node} {batch} training.seed=7 data.train="
        )
        assert settings(shlex.split(call, posix=False))["data.events"] == str(2 * ranks)
    record = read_record(SeriesRecord, tmp_path / "out" / SERIES)
    assert (record.ranks_per_node, record.cores_per_rank) == (2, None)


def test_a_small_series_from_its_command_to_its_report(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One and two ranks; taken up again, it keeps both and reports again."""
    monkeypatch.chdir(folder)
    out = tmp_path / "weak"
    size = ["--events", "2", "--validation", "1", "--repeats", "1", "--out", str(out)]
    command = ["bigtrk", "scale", "weak", "graphs", *SMALL, *size]
    command += ["--ranks", "1,2"]
    assert "epoch 2/2  train loss" in output_of(run_here(command, monkeypatch, capfd))
    kept = (out / "ranks0001-1" / "model.safetensors").stat().st_mtime_ns
    printed = output_of(run_here(command, monkeypatch, capfd))
    assert "[2/2] ranks0002-1: trained already" in printed
    assert "Memory, energy and cost per epoch" in printed
    assert (out / "ranks0001-1" / "model.safetensors").stat().st_mtime_ns == kept
    series = read_series(out)
    assert not series.notes
    one, two = (runs[0] for runs in series.runs.values())
    assert (two.record.data.train_events, two.record.data.validation_events) == (4, 2)
    cores = open_cores()
    assert one.record.machine.cores == max(1, cores // 2)
    assert two.record.machine.cores == min(cores, 2 * max(1, cores // 2))
    assert [step.events for step in two.steps] == [2] * 4
    assert [step.events for step in one.steps] == [1] * 4
    lines = [json.loads(line) for line in (out / "report.jsonl").read_text().splitlines()]
    assert [line["ranks"] for line in lines] == [1, 2]
    assert lines[1]["epoch_seconds"]["mean"] > 0
    assert 'class="plot"' in (out / "report.html").read_text()
    page = tmp_path / "series.html"
    report = ["bigtrk", "report", str(out), "--json", "--html", str(page)]
    printed = output_of(run_here(report, monkeypatch, capfd))
    assert page.exists()
    assert [json.loads(line)["ranks"] for line in printed.splitlines()] == [1, 2]
    error = refusal_of(run_here([*command, "--ranks-per-node", "2"], monkeypatch, capfd))
    assert "without --slurm all ranks share this host; leave out --ranks-per-node" in error
