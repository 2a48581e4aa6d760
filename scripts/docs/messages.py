"""Prints the messages of the programs with file and line, to be read as a user reads them.

python scripts/docs/messages.py
"""

import ast
from collections.abc import Iterator
from pathlib import Path

# Errors, warnings, and lines that say what goes on.
_SAID_BY = {
    *("InputError", "RankError", "StoppedError", "SectorError", "ContractError", "ValueError"),
    *("BadParameter", "LookupError", "OSError", "PermissionError", "damage_told", "too_large"),
    *("complain", "warn_once", "warn", "say", "tell", "refuse", "_bad", "_refusal"),
}


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yields line and text of each message in a file, with {expressions} for its values."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    named = {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in nodes:
        called = getattr(node, "func", None)
        said_by = getattr(called, "id", getattr(called, "attr", ""))
        if isinstance(node, ast.Call) and said_by in _SAID_BY:
            # A message may have a name.
            given = (named.get(getattr(one, "id", ""), one) for one in node.args)
            if text := "; ".join(filter(None, map(_text, given))):
                yield node.lineno, text


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def main() -> None:
    """Prints all messages."""
    for path in sorted(
        path for room in ("bigtrk", "partition") for path in Path(room).rglob("*.py")
    ):
        for line, text in sorted(messages(path)):
            print(f"{path}:{line}: {text}")


if __name__ == "__main__":
    main()
