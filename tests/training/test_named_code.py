"""Code that a run names: imported where its user says so, recorded, told where it is another."""

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bigtrk import console, user_code
from bigtrk.cost.footprint import footprint
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.builders.build_folder import build_folder, build_with
from bigtrk.graphs.builders.builder import TrueEdgeBuilder
from bigtrk.records.run_folder import read_run_record
from tests.models import user_models
from tests.programs import Run, output_of, refusal_of

NAME = "named_models:Simple"
Started = Callable[..., tuple[int, str, str]]
TRAIN = [
    *("bigtrk/train.py", f"model.name={NAME}", "model.options.hidden=5", "data.train=[graphs]"),
    *("training.epochs=1", "run.folder=run"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of events, and of graphs of them with all edges and with true ones alone."""
    made = tmp_path_factory.mktemp("data")
    simulate_folder(made / "events", range(3), 40, 0, None)
    build_folder(made / "events", made / "graphs")
    build_with(made / "events", made / "truth", TrueEdgeBuilder())
    return made


@pytest.fixture
def folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Starts in a folder with the data and a module of models."""
    for name in ("events", "graphs", "truth"):
        (tmp_path / name).symlink_to(data / name)
    (tmp_path / "named_models.py").write_text(Path(user_models.__file__).read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(console, "_warned", set())
    forget(monkeypatch)
    yield tmp_path
    sys.modules.pop("named_models", None)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process one that has been told of no code."""
    monkeypatch.setattr(user_code, "_allowed", set())
    footprint.cache_clear()
    sys.modules.pop("named_models", None)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, run_program: Run) -> Started:
    def run_new(*command: str) -> tuple[int, str, str]:
        forget(monkeypatch)
        return run_program([*command])

    return run_new


def test_only_the_user_lets_the_code_of_a_run_be_imported(folder: Path, run: Started) -> None:
    assert run(*TRAIN)[0] == 0
    source = folder / "named_models.py"
    (code,) = read_run_record(folder / "run").code.items()
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert code == (NAME, code[1].model_copy(update={"source": str(source), "version": digest}))
    for command in (
        ("bigtrk", "evaluate", "run", "graphs"),
        ("bigtrk", "infer", "run", "graphs", "tracks"),
        ("bigtrk", "filter", "run", "graphs", "thin", "--score-cut", "0.1"),
        ("bigtrk", "plan", "graphs", "--measured", "run", "--ranks", "1"),
        ("bigtrk", "resume", "run", "training.epochs=2"),
    ):
        said = refusal_of(run(*command))
        assert "if you trust this module, add --code named_models" in said, command
        assert "named_models" not in sys.modules
        status, _, said = run(*command, "--code", "named_models")
        assert (status, "warning" in said) == (0, False), said
    assert f"{NAME} {digest[:12]}" in "".join(output_of(run("bigtrk", "report", "run")).split("\n"))
    assert "named_models" not in sys.modules
    status, _, said = run(
        "bigtrk", "infer", "run", "graphs", "t2", "--precision", "bf16", "--code", "named_models"
    )
    assert status == 2
    assert f"leave out --precision bf16: class {NAME} sets its own precision" in said


def test_another_version_of_the_code_is_told_until_the_run_was_resumed_with_it(
    folder: Path, run: Started
) -> None:
    assert run(*TRAIN)[0] == 0
    source = folder / "named_models.py"
    versions = [hashlib.sha256(source.read_bytes()).hexdigest()]
    with source.open("a") as module:
        module.write("# mended\n")
    versions.append(hashlib.sha256(source.read_bytes()).hexdigest())
    evaluate = ("bigtrk", "evaluate", "run", "graphs", "--code", "named_models")
    resume = ("bigtrk/train.py", "--resume", "run", "training.epochs=2", "--code", "named_models")
    for command, told in ((evaluate, 1), (resume, 1), (evaluate, 0)):
        console._warned.clear()
        status, _, said = run(*command)
        assert status == 0
        lines = [line for line in said.splitlines() if "warning" in line]
        assert len(lines) == told
        assert all(f"run: was trained with another version of {NAME} (" in line for line in lines)
    record = read_run_record(folder / "run")
    (resumed,) = record.resumed
    assert [record.code[NAME].version, resumed.code[NAME].version] == versions
    printed = run("bigtrk", "report", "run")[1]
    assert f"{NAME} {versions[1][:12]}" in "".join(printed.split("\n"))


def test_what_breaks_the_contract_is_told_before_training(folder: Path, run: Started) -> None:
    with (folder / "named_models.py").open("a") as source:
        source.write(
            "class Column(Simple):\n"
            "    def forward(self, *inputs):\n"
            "        return super().forward(*inputs)[:, None]\n"
        )
    for command in (("bigtrk", "plan", "graphs"), ("bigtrk", "train", "data.train=[graphs]")):
        said = refusal_of(run(*command, "model.name=named_models:Column"))
        assert "Column: returns a tensor of shape [" in said
        assert len(said.splitlines()) == 1
        said = refusal_of(run(*command, f"model.name={NAME}", "model.options.hiden=3"))
        assert "takes no model.options.hiden; did you mean 'hidden'?" in said
    assert not (folder / "runs").exists()


def test_an_embedding_of_the_users_own_makes_graphs(folder: Path, run: Started) -> None:
    own = ("model.name=named_models:Embedding", "model.gives=hit", "data.train=[truth]")
    few = ("training.epochs=1", "sampling.method=wedges", f"run.folder={folder / 'run'}")
    output_of(run("bigtrk/train.py", *own, *few))
    build = ("bigtrk", "build", "events", "near", "--embedding", "run", "--radius", "0.01")
    assert "if you trust this module, add --code named_models" in refusal_of(run(*build))
    assert run(*build, "--code", "named_models")[0] == 0
