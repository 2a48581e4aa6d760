"""Writes types and texts for the references of settings and commands."""

from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import JsonValue

# Limits from here on only keep numbers within what machines can hold.
LARGEST = 10**6
WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    NoneType: "`null`",
    dict[str, JsonValue]: "keys and values",
}


def kind_of(annotation: Any, *limits: str) -> str:
    """Writes a type in words; its numbers with their limits, such as "> 0" and "< 1"."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (list, tuple):
        return f"list of {kind_of(inner[0])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{one.value}`" for one in annotation)
    if annotation in (int, float):
        return f"{WORDS[annotation]} {' and '.join(limits)}".strip()
    return WORDS.get(annotation) or " or ".join(kind_of(kind, *limits) for kind in inner)


def cell(text: str) -> str:
    """Writes a text for a cell of a table, which line ends and bars would end."""
    return " ".join(text.split()).replace("|", r"\|")
