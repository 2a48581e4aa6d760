"""The scripts as programs: what they answer, and small runs of those that prove something."""

import ast
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bigtrk.disk.files import read_json
from tests.distributed.graphs import random_graph
from tests.distributed.runs import write_in_sectors
from tests.programs import CHECKOUT, run_forked, run_python, run_shell

SCRIPTS = CHECKOUT / "scripts"
# They build the documentation, or write the result files: their tests import them.
IMPORTED = re.compile(r"scripts\.(docs|results)\b")
PROGRAMS = [
    path.relative_to(CHECKOUT).as_posix()
    for path in sorted(SCRIPTS.rglob("*.py"))
    if "ArgumentParser(" in path.read_text() and path.name != "fuzz.py"  # which needs atheris
]
SHELL = sorted(path for path in SCRIPTS.rglob("*") if path.suffix in (".sh", ".sbatch"))


def last_line(script: str, *arguments: str, folder: Path) -> Any:
    """Runs a script in `folder`; returns the JSON that it prints at its end."""
    command = shlex.join(
        ["env", f"PYTHONPATH={CHECKOUT}", "python", f"{SCRIPTS}/{script}", *arguments]
    )
    return json.loads(run_shell(command, folder, timeout=3600).splitlines()[-1])


def answer_help() -> None:
    """Starts programs one after another, as if each were the first."""
    for program in PROGRAMS:
        sys.argv = [program, "--help"]
        with pytest.raises(SystemExit) as end:
            runpy.run_path(program, run_name="__main__")
        assert not end.value.code, program


def test_every_script_answers_help() -> None:
    assert len(PROGRAMS) > 30
    run_forked(CHECKOUT, answer_help)


def test_shell_scripts_are_valid() -> None:
    for path in SHELL:
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert len(SHELL) > 8


def imported(path: Path) -> set[str]:
    """Lists the modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def test_no_test_imports_a_script_and_no_script_a_test() -> None:
    """A script may use a reference that tests have, such as an oracle, in no test's own file."""
    for path in (CHECKOUT / "tests").rglob("*.py"):
        scripts = [name for name in imported(path) if re.match(r"scripts\b", name)]
        assert [name for name in scripts if not IMPORTED.match(name)] == [], path
    for path in SCRIPTS.rglob("*.py"):
        assert [name for name in imported(path) if re.match(r"tests\b.*\.test_", name)] == [], path


def within(gib: float, code: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code under a limit of memory, where this user may set one."""
    limited = f"--gib={gib}", sys.executable, "-c", code
    done = run_python(["-m", "scripts.large_events.memory_limit", *limited])
    if "cannot limit memory" in done.stderr:
        pytest.skip("this user may not make control groups")
    return done


def test_memory_that_exceeds_its_limit_is_ended_by_the_kernel() -> None:
    for mib, killed in ((10, 0), (200, 1)):
        done = within(0.1, f"bytearray(b'1') * ({mib} * 2**20)")
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["out_of_memory"] == killed == bool(done.returncode)
        assert done.returncode == found["status"] % 256
        assert found["peak_bytes"] <= found["limit_bytes"] == int(0.1 * 2**30)


@pytest.mark.slow
def test_one_round_of_faults(tmp_path: Path) -> None:
    options = ("--rounds=1", "--fault=rank stopped", "--engine=ddp", "--ranks=2")
    assert last_line("faults/inject_faults.py", *options, folder=tmp_path) == {
        "rounds": 1, "undetected": 0, "hangs": 0, "steps_lost": 0, "wrong": 0
    }  # fmt: skip


@pytest.mark.slow  # it interprets training steps
def test_a_dry_run_of_the_gpu_suite_walks_through_every_part(tmp_path: Path) -> None:
    published = CHECKOUT / "docs/results/gpu.json"
    before = published.read_bytes()
    walked = last_line("gpu/gpu_suite.py", "--dry-run", f"--work={tmp_path}", folder=CHECKOUT)
    assert published.read_bytes() == before
    found = {name: read_json(tmp_path / f"{name}.json")["found"] for name in walked["walked"]}
    assert found["tests"]["passed"]
    assert all(row["same_bits"] for row in found["bits"]["rows"])
    assert found["sampling"]["same"]
    assert found["slow_tests"]["passed"]
    rows = [*found["steps_ctd"]["rows"], *found["compiled_small"]["50 k"]["rows"]]
    assert all(row["seconds"] > 0 for row in rows)
    assert found["training"]["over_step"] > 0
    assert len(found["offload"]["losses"]) == 2


@pytest.mark.slow
def test_an_event_in_files_trains_the_same_within_its_limit(tmp_path: Path) -> None:
    within(1.0, "True")
    output = tmp_path / "found.json"
    options = ("--quick", "--gib=2", f"--work={tmp_path}", f"--output={output}")
    found = last_line("large_events/any_size.py", *options, folder=tmp_path)
    assert 0.1 < found["peak_gib"] < found["memory_limit_gib"] == 2
    small = read_json(output)["small"]
    assert small["memory"]["weights"] == small["files"]["weights"]


@pytest.mark.slow
def test_studies_compare_all_ways(tmp_path: Path) -> None:
    write_in_sectors(tmp_path, [random_graph(seed, 60, 300) for seed in range(3)], 2)
    small = ("model.hidden=8", "model.layers=2", "sampling.batch_size=20")
    given = ("graphs", "sectors", "--minutes=0.02", *small)
    trained = last_line("studies/sampling_study.py", *given, folder=tmp_path)
    assert len(trained) == 5
    assert all(0 <= found["auc"] <= 1 for found in trained.values())
    run_of = ("study/full-graph", "sectors", "--draws=4", "--events=2")
    audited = last_line("studies/gradient_audit.py", *run_of, folder=tmp_path)
    assert list(audited) == ["events", "shadow", "naive-sectors", "halo-sectors", "wedges"]
    assert audited["events"]["bias_squared"] == 0
    assert audited["events"]["cosine"] == pytest.approx(1)
