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
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.graphs.storage.sector_folder import write_sectors
from bigtrk.machine import open_cores
from bigtrk.records.run import End, RunRecord
from bigtrk.records.run_folder import write_run_record
from bigtrk.records.series import read_series_record
from bigtrk.studies.launch import resumable, tail, torchrun_command, train_logged
from bigtrk.studies.scaling import run_series as running
from bigtrk.studies.scaling.plan_series import ScalingSeries, open_series, plan_series
from bigtrk.studies.scaling.run_series import run_series
from bigtrk.studies.scaling.series import read_series
from bigtrk.studies.scaling.slurm_series import slurm_script
from bigtrk.training.checkpoint.folder import commit, make_temporary
from bigtrk.training.checkpoint.manifest import Checkpoint, EpochTotals, Progress
from bigtrk.training.guards import LossHistory
from bigtrk.training.schedule import Plateau
from partition.sectors import cut
from tests.distributed.graphs import random_graph, random_parts
from tests.programs import run_here

SMALL = ("model.hidden=8", "model.layers=1", "training.epochs=2")
EMPTY = Path("empty.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine whole events in `graphs`, and the first of them in four sectors in `sectors`."""
    folder = tmp_path_factory.mktemp("events")
    (folder / EMPTY).touch()
    graphs = [random_graph(seed, 30, 90) for seed in range(9)]
    for graph in graphs:
        write_graph(folder / "graphs", graph, {"nodes": graph.n_nodes, "edges": graph.n_edges})
    names = [graph.name for graph in graphs]
    made = write_manifest(folder / "graphs", "graphs", {}, names)
    record = {
        "nodes": graphs[0].n_nodes,
        "edges": graphs[0].n_edges,
        "source_digests": made["events"][names[0]]["digests"],
    }
    write_sectors(folder / "sectors", cut(graphs[0], random_parts(graphs[0], 4, 4), 4), record)
    write_manifest(folder / "sectors", "sectors", {}, names[:1])
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


@pytest.mark.parametrize(
    ("given", "steps"), [("training.events_per_step=2", "2"), ("model.hidden=8", "3")]
)
def test_steps_of_a_strong_series_can_be_given(plan: Plan, given: str, steps: str) -> None:
    runs = plan("strong", "graphs", given, events=6).runs()
    assert {settings(run.arguments)["training.events_per_step"] for run in runs} == {steps}


def test_configuration_file_is_passed_on(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("training: {seed: 3, events_per_step: 8}\n")
    series = plan("strong", "graphs", str(file), events=6)
    assert series.runs()[0].arguments[0] == str(file)
    assert series.runs()[0].seed == 3
    assert settings(series.runs()[0].arguments)["training.events_per_step"] == "8"
    assert str(EMPTY) not in plan("strong", "graphs", events=6).runs()[0].arguments


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("weak", {"events": 3}, r"weak scaling needs 12 events \(3 ranks x \(3 to train on \+ 1"),
        ("weak", {"events": 3}, r"there are 9; make more \(bigtrk simulate events --events 12"),
        ("strong", {"events": 9}, r"strong scaling needs 10 events \(9 to train on \+ 1"),
        ("strong", {"events": 2}, r"--ranks 3: is more than the 2 events"),
        ("weak", {"ranks": "one"}, r"--ranks 'one': write numbers"),
    ],
)
def test_too_few_events_are_said_before_anything_runs(
    plan: Plan, kind: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan(kind, **changes)


def test_one_event_in_sectors_keeps_as_many_ranks_busy(plan: Plan) -> None:
    assert plan("strong", "sectors", ranks="1,2,4", events=1, validation=0).record.ranks[-1] == 4
    with pytest.raises(InputError, match="--ranks 8: is more than the 4 events, and sectors"):
        plan("strong", "sectors", ranks="8", events=1, validation=0)


@pytest.mark.parametrize(
    ("kind", "override", "instead"),
    [
        ("weak", "data.events=3", "use --events"),
        ("weak", "data.train=[graphs]", "name the folders"),
        ("strong", "data.validation=3", "use --validation"),
        ("strong", "run.folder=x", "use --out"),
        ("weak", "training.events_per_step=3", "use --ranks"),
    ],
)
def test_what_the_series_sets_is_refused(
    plan: Plan, kind: str, override: str, instead: str
) -> None:
    with pytest.raises(InputError, match=f"bigtrk scale sets .*; {instead}"):
        plan(kind, "graphs", override)


def test_shadow_scales_strongly_alone(plan: Plan) -> None:
    shadow = ("graphs", "sampling.method=shadow", "training.events_per_step=1")
    runs = plan("strong", *shadow, events=6).runs()
    assert {settings(run.arguments)["training.events_per_step"] for run in runs} == {"1"}
    with pytest.raises(InputError, match=r"sampling\.method=shadow: .*; give strong"):
        plan("weak", "graphs", "sampling.method=shadow", events=2)


def test_a_folder_holds_one_series(plan: Plan, tmp_path: Path) -> None:
    open_series(plan(ranks="2,3", repeats=1))
    open_series(plan("weak", "graphs", "run.price_per_device_hour=2"))
    record = read_series_record(tmp_path / "out")
    assert (record.ranks, record.repeats, record.price_per_device_hour) == ((1, 3), 2, 2.0)
    for kind, arguments, changes, message in (
        ("weak", ("graphs",), {"events": 1}, r"of another events \(2 instead of 1\)"),
        ("weak", ("graphs", "model.hidden=8"), {}, r"model.hidden 64 instead of 8"),
        ("strong", ("graphs",), {"events": 3}, r"of another kind"),
        ("weak", ("graphs",), {"ranks": "1,2"}, r"another cores_per_rank \(2 instead of 3\)"),
    ):
        with pytest.raises(InputError, match=message):
            open_series(plan(kind, *arguments, **changes))


def test_other_folders_are_not_taken(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(InputError, match="holds something else; choose another --out"):
        open_series(plan())


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of each training, which is not run; nor is there a report."""
    seen: list[str] = []

    def note(command: Sequence[str], log: Path, _: object) -> None:
        assert log.name == "train.log"
        seen.append(" ".join(command).partition("train.py ")[2])

    monkeypatch.setattr(user_code, "_allowed", set())  # other tests of this process name code
    monkeypatch.setattr(running, "train_logged", note)
    monkeypatch.setattr(running, "SeriesReport", lambda _: Report())
    return seen


class Report:
    """Reports nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def checkpoint(run: Path, epochs_done: int, ended: End | None = None) -> None:
    """Writes what a run that was killed after a checkpoint, or has ended, leaves on disk."""
    run.mkdir(parents=True, exist_ok=True)
    config = {"training": {"epochs": 2}}
    write_run_record(run, RunRecord(world_size=1, engine="ddp", config=config, ended=ended))
    progress = Progress(epochs_done, 0, 4, Plateau(), LossHistory(), EpochTotals())
    root, written = run / "checkpoints", Checkpoint(progress, {}, (), "", "DDP", {}, {})
    make_temporary(root, written.name)
    commit(root, written)


def test_series_is_taken_up_where_it_ended(plan: Plan, tmp_path: Path, commands: list[str]) -> None:
    series = plan(ranks="1,2,3")
    open_series(series)
    done, begun, lost = (tmp_path / "out" / f"ranks000{n}-1" for n in (1, 2, 3))
    for run in (done, begun, lost):
        run.mkdir()
    (done / "model.safetensors").touch()
    checkpoint(begun, 1)
    (lost / "half").touch()
    run_series(series)
    assert commands[0] == f"--resume {begun}"
    assert commands[1].endswith(f"run.folder={lost}")
    assert not (lost / "half").exists()
    assert len(commands) == 5


def test_run_that_was_killed_after_its_last_checkpoint_has_its_model_to_write(
    plan: Plan, tmp_path: Path, commands: list[str]
) -> None:
    series = plan(ranks="1", repeats=1)
    open_series(series)
    run = tmp_path / "out" / "ranks0001-1"
    checkpoint(run, 2)
    run_series(series)
    assert commands == [f"--resume {run}"]


@pytest.mark.parametrize("ended", [None, "epochs", "patience"])
def test_a_run_goes_on_unless_it_has_ended(tmp_path: Path, ended: End | None) -> None:
    checkpoint(tmp_path, 1, ended)
    assert resumable(tmp_path) == (ended is None)


def test_a_run_that_is_being_written_is_left(
    plan: Plan, tmp_path: Path, commands: list[str]
) -> None:
    """Another launch of the series has not come to its first checkpoint."""
    series = plan(ranks="1", repeats=1)
    open_series(series)
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
    said = "print(*range(20), 'the cause', sep='\\n'); import sys; sys.exit(3)"
    with pytest.raises(InputError) as raised:
        train_logged([sys.executable, "-c", said], log, os.environ)
    message = str(raised.value)
    assert message.startswith("ranks0002-1: the training ended with status 3; above is the end of")
    assert str(log) in message
    shown = [line.strip() for line in capsys.readouterr().err.splitlines()]
    assert shown[-1] == "the cause"
    assert "12" not in shown


def test_tail_ends_before_torchruns_own_report(tmp_path: Path) -> None:
    script, log = tmp_path / "fails.py", tmp_path / "log"
    script.write_text("raise SystemExit('lower optimizer.lr')\n")
    with pytest.raises(InputError):
        train_logged(torchrun_command(1, script, ()), log, os.environ)
    assert "ChildFailedError" in log.read_text()
    assert tail(log)[-1] == "lower optimizer.lr"


@pytest.mark.parametrize("linked", ["ranks0002-1/train.log", "ranks0002-1"])
def test_a_log_is_not_written_through_a_link(tmp_path: Path, linked: str) -> None:
    outside, series = tmp_path / "outside", tmp_path / "series"
    (series / linked).parent.mkdir(parents=True)
    (series / linked).symlink_to(outside)
    with pytest.raises(InputError, match=f"{linked}: is a symbolic link"):
        train_logged(["true"], series / "ranks0002-1" / "train.log", os.environ)
    assert not outside.exists()


def test_epochs_are_shown_as_they_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "epoch 1/2: 3/8\\nepoch 1/2  train loss 0.5  5.0 s\\nother"
    train_logged([sys.executable, "-c", f"print('{lines}')"], tmp_path / "log", os.environ)
    assert capsys.readouterr().out == "  epoch 1/2  train loss 0.5  5.0 s\n"
    assert "other" in (tmp_path / "log").read_text()


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
    record = read_series_record(tmp_path / "out")
    assert (record.ranks_per_node, record.cores_per_rank, record.shares) == (2, None, 1)


def test_a_small_series_from_its_command_to_its_report(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One and two ranks; taken up again, it keeps both and reports again."""
    monkeypatch.chdir(folder)
    out = tmp_path / "weak"
    size = ["--events", "2", "--validation", "1", "--repeats", "1", "--out", str(out)]
    command = ["bigtrk", "scale", "weak", "graphs", *SMALL, *size]
    command += ["--ranks", "1,2"]
    status, printed, error = run_here(command, monkeypatch, capfd)
    assert status == 0, error
    assert "epoch 2/2  train loss" in printed
    kept = (out / "ranks0001-1" / "model.safetensors").stat().st_mtime_ns
    status, printed, error = run_here(command, monkeypatch, capfd)
    assert status == 0, error
    assert "[2/2] ranks0002-1: trained already" in printed
    assert "Measured and predicted" in printed
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
    scores = two.epochs[-1].validation
    assert scores is not None
    assert scores.n_target
    assert two.epochs[-1].power.absent["accelerator"]
    lines = [json.loads(line) for line in (out / "report.jsonl").read_text().splitlines()]
    assert [line["ranks"] for line in lines] == [1, 2]
    assert lines[1]["predicted"]["epoch_seconds"] > 0
    assert 'class="plot"' in (out / "report.html").read_text()
    status, printed, _ = run_here(["bigtrk", "report", str(out), "--json"], monkeypatch, capfd)
    assert [json.loads(line)["ranks"] for line in printed.splitlines()] == [1, 2]


def test_ranks_per_node_belong_to_slurm(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    command = ["bigtrk", "scale", "weak", "graphs", "--ranks-per-node", "2"]
    status, _, error = run_here(command, monkeypatch, capsys)
    assert status == 2
    assert "belongs to --slurm" in error
