"""Values that a test knows to be there."""

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Returns a value that is not None; the test fails where it is."""
    assert value is not None
    return value
