"""The program without a command, and its two commands that are programs of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import bigtrk
from tests.distributed.runs import write_events
from tests.programs import Run, refusal_of, run_shell
from tests.reports.run_folders import run_writer

ALONE = {"train": "bigtrk/train.py", "partition": "bigtrk-partition"}


def test_version(run_program: Run) -> None:
    found = run_program(["bigtrk", "--version"])
    assert found == (0, f"bigtrk {bigtrk.__version__}\n", "")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["bigtrk", "report", "~/absent"], "HOME/absent: no such folder"),
        (["bigtrk", "report", "runs", "$NO_SUCH/x"], "the variable $NO_SUCH is unset or empty"),
        (["bigtrk", "report", "runs", "--html", "~/absent/x.html"], "no such folder HOME/absent"),
        (["bigtrk", "evaluate", "run", "graphs", "--spill", "$NO_SUCH/x"], "error: $NO_SUCH/x: "),
        (["bigtrk", "plan", "~/absent"], "HOME/absent"),
        (["bigtrk", "export", "heptrkx", "~/absent", "out"], "HOME/absent"),
        (["bigtrk", "simulate", "out", "--detectors", "~/absent"], "HOME/absent: is neither a bui"),
        (["bigtrk/train.py", "~/absent.yaml"], "HOME/absent.yaml: no such file"),
        (["bigtrk/train.py", "--resume", "~/absent"], "HOME/absent"),
        (["bigtrk-partition", "~/absent", "out", "--parts", "2"], "HOME/absent: no such folder"),
    ],
)
def test_paths_are_expanded(
    command: list[str], told: str, workdir: Path, monkeypatch: pytest.MonkeyPatch, run_program: Run
) -> None:
    monkeypatch.setenv("HOME", str(workdir / "home"))
    (workdir / "runs").mkdir()
    error = refusal_of(run_program(command))
    assert told.replace("HOME", str(workdir / "home")) in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("audit runs/0001", "audit' was removed; use python -m scripts.studies.gradient_audit"),
        ("search x.yaml --executor=ray", "search --executor' was removed; use --launcher COMMAND"),
        ("search x.yaml --storage journal", "search --storage' was removed; leave it out"),
        ("score tracks events --min-hits 4", "score --min-hits' was removed; use --hits-min"),
    ],
)
def test_what_is_gone_names_what_to_use(typed: str, told: str, run_program: Run) -> None:
    status, _, error = run_program(["bigtrk", *typed.split()])
    assert (status, error.count("\n")) == (2, 1)
    assert error.startswith(f"bigtrk: error: 'bigtrk {told}")


def test_a_full_disk_behind_the_output_is_told_in_a_line() -> None:
    with Path("/dev/full").open("w") as full:
        program = [sys.executable, "-m", "bigtrk", "--version"]
        ended = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "the output: No space left on device; free some space, or name another disk"
    assert (ended.returncode, ended.stderr) == (2, f"bigtrk: error: {said}\n")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("train", ["model.hiden=3"]), ("partition", ["absent", "sectors", "--parts", "2"])],
)
def test_help_and_bad_input_are_told_as_the_program_does(
    command: str,
    arguments: list[str],
    workdir: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_program: Run,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    named, program = ["bigtrk", command], ALONE[command]
    said = run_program([*named, *arguments])
    status, out, error = run_program([program, *arguments])
    assert status == 2
    assert error.startswith(f"{ALONE[command]}: error: ")
    assert said == (status, out, error.replace(ALONE[command], f"bigtrk {command}"))
    assert list(workdir.iterdir()) == []
    texts = [run_program([*typed, "--help"])[1] for typed in (named, [program])]
    assert texts[0].strip().partition("\n")[2] == texts[1].strip().partition("\n")[2]
    assert "--resume" in texts[0] or "--parts" in texts[0]


def test_both_from_a_folder_of_their_own(workdir: Path, run_program: Run) -> None:
    """Events are cut here and trained on by two real ranks, where there is no checkout."""
    write_events(workdir)
    cut = ["graphs", "cut", "--parts", "2", "--workers", "1"]
    assert run_program(["bigtrk", "partition", *cut])[0] == 0
    run_shell(
        "torchrun --standalone --nproc-per-node 2 -m bigtrk train "
        "data.train=[cut] model.hidden=8 model.layers=2 training.epochs=1",
        workdir,
    )
    record = json.loads((workdir / "runs" / "0001" / "run.json").read_text())
    assert (record["world_size"], record["launcher"]) == (2, "torchrun")
    assert "on 2 ranks, started by torchrun" in (workdir / "runs/0001/MODEL.md").read_text()
    lines = (workdir / "runs" / "0001" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines].count("step") == 4


def test_a_page_needs_a_folder_that_is_there(tmp_path: Path, run_program: Run) -> None:
    """The page is refused before the run is read: an evaluation may take an hour."""
    evaluate = ["bigtrk", "evaluate", str(tmp_path / "run"), str(tmp_path), "--html"]
    wrong = "its name must end with .html"
    refused = {"missing/page.html": "no such folder", ".": "is a folder", "run.json": wrong}
    for page, said in refused.items():
        assert said in refusal_of(run_program([*evaluate, str(tmp_path / page)]))
        assert not list(tmp_path.iterdir())


def test_a_report_of_runs_starts_without_torch(tmp_path: Path) -> None:
    run = run_writer(tmp_path)()
    program = "import sys; from bigtrk.cli import main; sys.argv[0] = 'bigtrk'\n"
    program += "try: main()\nfinally: assert 'torch' not in sys.modules"
    asked = [sys.executable, "-c", program, "report", str(run), "--html", str(tmp_path / "a.html")]
    ended = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert "loss" in ended.stdout


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("train <(cat a)", "piped: no such folder"),
        (": | train -", "/dev/stdin: is empty; check the command that writes into this pipe"),
        ("cat a | RANK=0 WORLD_SIZE=2 train -", "/dev/stdin: is a pipe, which one rank alone"),
    ],
)
def test_a_configuration_from_a_pipe(line: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("data: {train: piped}")
    train = f"{sys.executable} -m bigtrk train"
    said = run_shell(f"({line.replace('train', train)}) 2>&1 || true", tmp_path)
    assert said.startswith(f"bigtrk train: error: {told}")
