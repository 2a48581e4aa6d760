"""Names and texts from anywhere are shown as they are: no terminal and no markup obeys them."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from plotly.offline import get_plotlyjs
from rich.table import Table
from rich.text import Text

from bigtrk.console import Screen, exit_on_bad_input, follow, say
from bigtrk.errors import InputError, printable
from bigtrk.records.run import RunRecord
from bigtrk.reports.terminal import at_width
from tests.distributed.graphs import random_graph, write_graphs
from tests.programs import Run, output_of, refusal_of, run_python
from tests.reports.run_folders import epoch_record, run_record, run_writer

ESCAPES = ["\x1b[31m", "\x1b]8;;http://x\x1b\\", "\x07", "\r", "\x9b2J", "\u202e", "\udcff", "a\nb"]
ESCAPE = "\x1b[31mred\x1b[0m\x07"
MARKUP = ["[red]x[/red]", "[link=http://x]x[/link]", "[/]", ":bomb:"]


def harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("name", ESCAPES + MARKUP)
def test_lines_tables_titles_and_captions_are_shown_literally(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say(f"{name} is read")
    assert capsys.readouterr().out == f"{printable(name)} is read\n"
    out = io.StringIO()
    screen = Screen(file=out, width=200, force_terminal=True, color_system=None)
    table = Table(name, title=f"title {name}", caption=f"caption {name}")
    table.add_row(name, style="dim")
    at_width(screen).print(table, Text(f"text {name}"))
    assert harmless(out.getvalue())
    if name in MARKUP:
        assert out.getvalue().count(name) == 5


@pytest.mark.parametrize("kind", [InputError, OSError])
def test_errors_are_one_line(kind: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise kind(f"{ESCAPE}: no such file")

    with pytest.raises(SystemExit):
        exit_on_bad_input("bigtrk", fail)
    assert capsys.readouterr().err == f"bigtrk: error: {printable(ESCAPE)}: no such file\n"


def test_a_terminal_that_lacks_letters_ends_no_command_and_a_traceback_is_harmless() -> None:
    program = (
        "from bigtrk.console import exit_on_bad_input, say\n"
        "exit_on_bad_input('bigtrk', lambda: say('0.8 \u00b1 0.1'))\n"
        "raise KeyError('x') from RuntimeError('\\x1b[31mred')"
    )
    done = run_python(["-c", program], PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (1, "0.8 ? 0.1\n"), done.stderr
    assert harmless(done.stderr)
    assert done.stderr.startswith("RuntimeError: \\x1b[31mred\n")
    assert done.stderr.endswith("KeyError: 'x'\n")


@pytest.mark.parametrize(("total", "lines"), [(1, 1), (19, 10), (1000, 10)])
def test_progress_takes_ten_lines_of_a_log(
    total: int, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(follow(range(total), total, "build")) == list(range(total))
    told = capsys.readouterr().err.splitlines()
    assert len(told) == lines
    assert told[-1] == f"build: {total}/{total}"
    list(follow(range(total), total, "build", lines=0))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "command",
    [
        ["bigtrk", ESCAPE],
        ["bigtrk", "report", ESCAPE],
        ["bigtrk", "plan", f"model.{ESCAPE}=1"],
        ["bigtrk-partition", ESCAPE, "sectors", "--parts", "2"],
        ["bigtrk/train.py", "--resume", ESCAPE],
        ["bigtrk/train.py", f"data.train=['a{os.sep}[red]b']"],
    ],
)
@pytest.mark.usefixtures("workdir")
def test_bad_command_lines_are_told_in_one_harmless_line(
    command: list[str], run_program: Run
) -> None:
    errors = refusal_of(run_program(command))
    assert errors.endswith("\n")
    assert errors[:-1].isprintable()
    assert "error: " in errors


def hostile(value: Any) -> Any:
    """Puts an escape code at the end of each text, keys included."""
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return f"{value}{ESCAPE}" if isinstance(value, str) else value


def test_a_run_of_hostile_texts_is_reported(tmp_path: Path, run_program: Run) -> None:
    content = hostile(run_record().model_dump(mode="json"))
    content["config"]["model"][ESCAPE] = ESCAPE
    content["software"][ESCAPE] = ESCAPE
    record = RunRecord.model_validate(content)
    run = run_writer(tmp_path)(f"run{ESCAPE}\udcff", record, [epoch_record(0)])
    page = tmp_path / "page.html"
    command = ["bigtrk", "report", str(run), "--html", str(page)]
    status, printed, errors = run_program(command)
    assert (status, errors) == (0, "")
    assert "\\x1b[31mred" in printed
    assert harmless(printed)
    assert harmless(page.read_text("utf-8").replace(get_plotlyjs(), ""))
    printed = output_of(run_program([*command[:3], "--json"]))
    assert harmless(printed)
    assert json.loads(printed)["runs"][0]["config"]["model"][ESCAPE] == ESCAPE


def test_a_script_for_slurm_holds_no_line_of_a_name(workdir: Path, run_program: Run) -> None:
    """A comment names the folder: a line break in it would begin a command."""
    write_graphs(workdir / "graphs", [random_graph(number, 40, 200) for number in range(3)])
    options = ["--events", "1", "--validation", "1", "--ranks", "1", "--slurm", "--out", "x\ndate"]
    command = ["bigtrk", "scale", "weak", "graphs", *options]
    assert "the name 'x\\ndate' has unprintable characters" in refusal_of(run_program(command))
    assert not Path("x\ndate").exists()
