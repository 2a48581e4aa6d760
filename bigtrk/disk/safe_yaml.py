"""YAML from anywhere: plain values only, and no more of them than a configuration has."""

from typing import Any

import yaml

MAX_BYTES = 1 << 20
# Counted with every alias written out: a few lines of aliases of aliases make billions.
MAX_VALUES = 200_000
MAX_DIGITS = 100  # "1:2:3 ..." is a number to the base of 60, whose cost grows with its square
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def parse_yaml(text: str) -> Any:
    """Parses YAML text; tags of Python objects are refused.

    Raises:
        ValueError: the text is not YAML or is larger than a configuration; the message is one line.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    except Exception as error:  # a bad value of a known tag raises whatever its class does
        raise ValueError(" ".join(str(error).split())) from None


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Counts the values in `node`, aliases written out.

    Raises:
        ValueError: there are too many, endlessly many, one is a number of too many digits, or a key
            is written twice.
    """
    if id(node) in known:
        if not known[id(node)]:
            raise ValueError("an alias holds itself")
        return known[id(node)]
    known[id(node)] = 0
    if isinstance(node, yaml.ScalarNode):
        parts = []
        if node.tag in NUMBERS and len(node.value) > MAX_DIGITS:
            raise ValueError(f"a number of more than {MAX_DIGITS} digits")
    elif isinstance(node, yaml.MappingNode):
        _check_keys(node)
        parts = [part for pair in node.value for part in pair]
    else:
        parts = node.value
    known[id(node)] = 1 + sum(_count(part, known) for part in parts)
    if known[id(node)] > MAX_VALUES:
        raise ValueError(f"it holds more than {MAX_VALUES} values, aliases written out")
    return known[id(node)]


def _check_keys(mapping: yaml.MappingNode) -> None:
    """Refuses a key that is written twice, of which PyYAML would take the last."""
    known = set()
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in known:
                line = key.start_mark.line + 1
                raise ValueError(f"key {key.value!r} is written a second time in line {line}")
            known.add((key.tag, key.value))
