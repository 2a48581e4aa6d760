"""The references that are made from the program: nothing is left out, and all has a meaning."""

import re
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from bigtrk import __version__, cli
from bigtrk.config import GONE
from bigtrk.training.settings import Configuration
from scripts.docs.command_reference import Command, command_reference, commands
from scripts.docs.example_pages import EXAMPLES, example_pages
from scripts.docs.settings_reference import Section, sections, settings_reference
from tests.programs import CHECKOUT, run_shell
from tests.test_every_option import options

DOCS = CHECKOUT / "docs"
# By scripts/docs/hooks.py.
MADE = ("settings.md", "commands.md", "contributing.md", "changes.md", *example_pages())
UNITS = {"", "GeV", "GiB", "dollars/h", "median absolute deviations", "min", "s"}
UNITS |= {"edges", "epochs", "events", "hits", "hops", "mini-batches", "nodes", "pairs", "ranks"}
UNITS |= {"steps", "wedges"}


@pytest.mark.parametrize("section", list(sections()), ids=lambda section: section.title)
def test_every_setting_has_a_meaning_and_a_known_unit(section: Section) -> None:
    assert section.text
    for setting in section.settings:
        assert setting.meaning.endswith("."), f"{setting.key} has no meaning: {setting.meaning!r}"
        assert setting.unit in UNITS, f"{setting.key} is in {setting.unit!r}"


def test_the_settings_are_all_of_the_configuration() -> None:
    """Every value of a configuration with each of the models, whatever the reference walks."""
    names = ("interaction", "attention", "mlp", "embedding", "pyg", "my_module:MyModel")
    models = [{"name": name} for name in names]
    there = {key for one in models for key in keys(Configuration.model_validate({"model": one}))}
    assert {setting.key for section in sections() for setting in section.settings} == there
    written = settings_reference()
    assert [key for key in there if f"| `{key}` |" not in written] == []


def keys(settings: BaseModel, prefix: str = "") -> list[str]:
    found = []
    for name, value in settings:
        if isinstance(value, BaseModel):
            found += keys(value, f"{prefix}{name}.")
        else:
            found.append(prefix + name)
    return found


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: command.name)
def test_every_command_and_option_says_what_it_is(command: Command) -> None:
    assert command.text
    for parameter in command.parameters:
        assert parameter.meaning, f"{command.name} {parameter.name} has no help"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_links_of_a_page_stay_in_the_site(page: Path) -> None:
    """`make docs` checks anchors, too; this one needs no mkdocs."""
    for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
        target = (page.parent / link).resolve()
        assert target.is_relative_to(DOCS), f"{link} leads out of the site"
        there = target.relative_to(DOCS).as_posix()
        assert target.is_file() or there in MADE, f"{link} leads nowhere"


@pytest.mark.parametrize("name", sorted(example_pages()))
def test_a_page_of_an_example_has_its_whole_text(name: str) -> None:
    page = example_pages()[name]
    _, *cells = (EXAMPLES / f"{Path(name).stem}.py").read_text().split("\n# %%")
    lines = [line for cell in cells for line in cell.splitlines()[1:] if line.strip("# ")]
    assert lines
    assert [line for line in lines if line.removeprefix("# ") not in page] == []
    assert page.startswith("# ")
    assert len(re.findall("^```", page, re.MULTILINE)) % 2 == 0
    for picture in re.findall(r"!\[.*\]\(\.\./(.*)\)", page):
        assert (DOCS / picture).stat().st_size < 300_000


def test_every_example_has_a_page() -> None:
    examples = {f"examples/{path.name}" for path in EXAMPLES.glob("*.py")}
    nets = {"examples/pyg_nets.py"}  # a module of networks, no notebook
    assert {name.replace(".md", ".py") for name in example_pages()} == examples - nets


def test_the_commands_are_all_that_the_program_has() -> None:
    written = command_reference()
    for command, flags in options(cli.app):
        (_, part) = written.split(f"\n## bigtrk {command}\n")
        for flag in flags:
            assert f"| `{flag.split()[0]}` |" in part.split("\n## ")[0]
    # `--help` shows each in a line of its panel.
    assert [one.name for one in commands() if len(one.text.split("\n\n")[0]) > 60] == ["train"]
    assert "Example: `bigtrk build events graphs`" in written
    assert "| `--parts` | integer ≥ 1 |" in written
    assert "| `--resume RUN` |" in written


def test_the_changes_name_what_is_gone() -> None:
    """Each release has one section, the newest first."""
    changes = (CHECKOUT / "CHANGELOG.md").read_text()
    releases = [tuple(map(int, r.split("."))) for r in re.findall(r"(?m)^## (\S+)", changes)]
    assert releases == sorted(set(releases), reverse=True)
    removed = "".join(re.findall(r"(?ms)^### Removed\n(.*?)^##", changes))
    assert [name for name in (*cli._GONE, *GONE) if f"{name.split()[-1]}`" not in removed] == []


def test_the_files_of_a_release_agree() -> None:
    """They agree on its version, date and torch, and the licence is that of what pages hold."""
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text())
    _, *releases = re.split(r"(?m)^(?=## )", (CHECKOUT / "CHANGELOG.md").read_text())
    assert citation["version"] == __version__
    assert releases[0].startswith(f"## {__version__} ({citation['date-released']})\n")
    assert max(len(release.splitlines()) for release in releases) <= 40
    (torch,) = re.findall("(?m)^torch==.*", (CHECKOUT / "constraints.txt").read_text())
    for name in ("Makefile", "scripts/release/release.sh", "docs/clusters.md"):
        assert torch in (CHECKOUT / name).read_text()
    recipe = (CHECKOUT / "scripts/slurm/bigtrk.def").read_text()
    assert torch in recipe
    assert f"/bigtrk-{__version__}-py3-none-any.whl /opt" in recipe
    licence = metadata.distribution("plotly").read_text("licenses/LICENSE.txt")
    assert (CHECKOUT / "licenses/plotly.txt").read_text() == licence


def test_pages_docstrings_and_messages_are_plain_english(tmp_path: Path) -> None:
    check = "python scripts/docs/wording.py"
    assert run_shell(check, CHECKOUT) == ""
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text(f"# Do it\n\n{'Short. ' * 9}\n\n* It\n  is {'very ' * 27}long.\n")
    module.write_text('"""Says so many."""')
    found = run_shell(f"! {check} {page} {module}", CHECKOUT)
    for broken in ("module.py:1: begins with 'Says'", "module.py:1: 'so", "page.md:5: 30 words"):
        assert broken in found
