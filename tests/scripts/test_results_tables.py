"""Tables in the documentation are what the result files say."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from bigtrk.errors import InputError
from scripts.docs import results_tables
from scripts.docs.results_tables import TABLES, Page, pages
from tests.programs import CHECKOUT

COMMIT = "0123456789abcdef0123456789abcdef01234567"
EXCHANGES = {"parts": 2, "step": 4.0, "waiting": 0.1, "transfer": 0.02, "packing": 0.0001}
TABLE = "Text\n\n<!-- results: exchange_cost --><!-- /results -->\n\nMore\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Makes a checkout with a page below docs, and one result file."""
    (tmp_path / "docs/how").mkdir(parents=True)
    (tmp_path / "README.md").write_text("No table\n")
    publish(tmp_path, COMMIT)
    return tmp_path


def publish(checkout: Path, commit: str | None, **changed: float) -> None:
    path = checkout / "docs/results/exchange_cost.json"
    path.parent.mkdir(exist_ok=True)
    summary = {"2": 0.005, "share": 0.25}
    found = {"commit": commit, "summary": summary, "measured": [{**EXCHANGES, **changed}]}
    path.write_text(json.dumps(found))


def page(checkout: Path, text: str) -> Page:
    path = checkout / "docs/how/page.md"
    path.write_text(text)
    return Page(path, checkout)


def run(monkeypatch: pytest.MonkeyPatch, checkout: Path, *arguments: str) -> Any:
    monkeypatch.setattr(results_tables, "CHECKOUT", checkout)
    monkeypatch.setattr(sys, "argv", ["results_tables.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        results_tables.main()
    return ended.value.code


def test_the_documentation_says_what_the_result_files_do() -> None:
    read = [Page(path, CHECKOUT) for path in pages(CHECKOUT)]
    differing = [f"{one.path.name}: {what}" for one in read for what in one.differing]
    assert differing == [], "run scripts/docs/results_tables.py"
    shown = set(re.findall(r"<!-- results: (\w+) -->", "".join(one.text for one in read)))
    assert shown == set(TABLES)


@pytest.mark.parametrize("path", sorted((CHECKOUT / "docs/results").glob("*.json")), ids=str)
def test_a_result_file_names_its_commit_or_is_of_earlier_code(path: Path) -> None:
    found = json.loads(path.read_text())
    if found["commit"] is None:
        assert found["of_earlier_code"] is True
    else:
        assert re.fullmatch("[0-9a-f]{40}", found["commit"])
        assert found["clean"] is True
        assert {"summary", "machine", "software"} <= found.keys()


def test_a_table_is_made_from_its_file(checkout: Path) -> None:
    assert page(checkout, TABLE).filled == (
        "Text\n\n<!-- results: exchange_cost -->\n\n"
        "| sectors | step | in exchanges, with waiting | transfer alone | packing |\n"
        "|--:|--:|--:|--:|--:|\n"
        "| 2 | 4.0 s | 2.5 % | 0.50 % | < 0.01 % |\n\n"
        "Measured at commit 0123456: "
        "[results/exchange_cost.json](../results/exchange_cost.json).\n\n"
        "<!-- /results -->\n\nMore\n"
    )


def test_what_differs_is_named_and_rewritten(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number = "Of <!-- result: exchange_cost/summary/share .1% --><!-- /result --> of a step\n"
    path = page(checkout, TABLE + number).path
    assert run(monkeypatch, checkout) == 0
    assert "-->25.0 %<!--" in path.read_text()
    assert run(monkeypatch, checkout, "--check") == 0
    publish(checkout, COMMIT, step=8.0)
    before = path.read_text()
    capsys.readouterr()
    assert run(monkeypatch, checkout, "--check") == 1
    assert "docs/how/page.md: exchange_cost is not what" in capsys.readouterr().err
    assert path.read_text() == before
    assert run(monkeypatch, checkout) == 0
    assert "| 2 | 8.0 s |" in path.read_text()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!-- results: nonsense --><!-- /results -->", "no table 'nonsense'"),
        ("<!-- results: exchange_cost -->", "without <!-- /result"),
        ("<!-- /results -->", "or the reverse"),
        ("a <!-- result: exchange_cost/measured .1f --><!-- /result -->", "hold no number"),
        ("a <!-- result: missing/summary .1f --><!-- /result -->", "no such file"),
        ("a\n<!-- result: exchange_cost/summary/2 g --><!-- /result -->", "begins a line"),
    ],
)
def test_comments_that_cannot_be_filled_are_refused(
    checkout: Path, text: str, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        page(checkout, text)
