"""The page of promises names a test that exists for each of them."""

import re

import pytest

from tests.programs import CHECKOUT

PAGE = (CHECKOUT / "docs" / "promises.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "| promise" not in line]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_a_promise_names_its_test(row: str) -> None:
    proof = re.fullmatch(r"\| .+ \| `([\w/]+\.py)::(test_\w+)` \|", row)
    assert proof, row
    file, name = proof.groups()
    assert f"def {name}(" in (CHECKOUT / "tests" / file).read_text()
