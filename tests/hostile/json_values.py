"""JSON content in which any value is replaced by one that it should not be."""

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]
# What a record's value may be instead of what it should.
VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 3, 2**31, 2**53, 2**63, 10**30, 10**4000),
    *(0.5, -0.5, 1e-320, 1e-30, 1e30, 1e300, float("nan"), float("inf")),
    *("", "x", "a\nb", "\x1b[31m", "\ud800", "../../x", "x" * 5000, "1" * 5000),
    *([], [1], [1, 2, 3], ["a"], {}, {"a": 1}, {"a\nb": {}}, {"x" * 5000: []}, [[]], DEEP),
]


def places(content: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path to every value in JSON content, that of all of it first."""
    yield here
    if isinstance(content, list):
        content = dict(enumerate(content))
    for key, value in content.items() if isinstance(content, dict) else ():
        yield from places(value, (*here, key))


def mutated(content: Any, place: Sequence[Any], value: Any, how: str = "replace") -> Any:
    """Returns the content with `value` at `place`, or without what is there ("drop"), or with
    `value` beside it ("add").
    """
    if not place:
        return value
    changed = deepcopy(content)
    around = changed
    for key in place[:-1]:
        around = around[key]
    if how == "drop":
        del around[place[-1]]
    elif how == "add" and isinstance(around, list):
        around.insert(place[-1], value)
    else:
        around[place[-1] if how == "replace" else f"{place[-1]}?"] = value
    return changed


def as_json(content: Any) -> bytes:
    """Writes JSON as hostile as there is: with NaN, numbers beyond all and halves of characters."""
    return json.dumps(content).replace("Infinity", "1e999").encode()
