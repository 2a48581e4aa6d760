"""Limits on JSON from anywhere: its values can be shown, computed with, and written again."""

import math
from collections.abc import Iterable
from itertools import chain
from typing import Any

MAX_DEPTH = 100  # Python reads nesting ten times as deep, of which it cannot write all


def checked(content: Any) -> Any:
    """Returns the content of JSON unchanged, once it has been checked.

    Raises:
        ValueError: it nests too deep, a number is infinite, or text holds half of a character.
    """
    level = [content]
    for _ in range(MAX_DEPTH):
        if not level:
            return content
        for value in level:
            _check(value)
        level = [part for value in level for part in _parts(value)]
    raise ValueError("it nests too deep")


def _check(value: Any) -> None:
    if isinstance(value, str) and not value.isascii():
        value.encode()  # raises UnicodeEncodeError, which is a ValueError
    # 1e999 is JSON, and read as infinity.
    if isinstance(value, float) and math.isinf(value):
        raise ValueError("a number is beyond those of 64 bits")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return chain(value.keys(), value.values())
    return value if isinstance(value, list) else ()
