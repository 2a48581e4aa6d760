"""The examples of docs/python.md, in its order."""

import re
from pathlib import Path

import pytest

from tests.programs import CHECKOUT

PAGE = (CHECKOUT / "docs" / "python.md").read_text()
EXAMPLES = PAGE[: PAGE.index("## For code of your own")]


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They run on smaller events, in one process, as a notebook would."""
    monkeypatch.chdir(tmp_path)
    found = re.findall(r"```python\n(.*?)```", EXAMPLES, flags=re.DOTALL)
    assert len(found) == 2
    variables: dict[str, object] = {}
    for code in found:
        exec(code.replace("particles=500", "particles=100"), variables)
    assert re.search(r"event000000007: \d+ hits, \d+ tracks", capsys.readouterr().out)
