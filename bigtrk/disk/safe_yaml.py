"""Parses YAML from anywhere: plain values only, of a configuration's size.

If the type of a setting is text, its value is the text as it is written.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from bigtrk.console import given_path
from bigtrk.errors import InputError

MAX_BYTES = 1 << 20
MAX_DIGITS = 100  # "1:2:3 ..." is a number to the base of 60, whose cost grows with its square
_TEXT, _BOOL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:bool"
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")

# The types that a value may have, empty where they are unknown. A mapping gives them by key, and
# for EACH item of a list.
Types = Sequence[Any]
EACH = "*"
_LIST = "tag:yaml.org,2002:seq"
# The types that YAML gives to plain scalars which may be text, such as off, 007 and 2024-06-01.
_READ_AS: dict[str, set[Any]] = {
    "tag:yaml.org,2002:null": {NoneType},
    _BOOL: {bool},
    "tag:yaml.org,2002:int": {int, float},
    "tag:yaml.org,2002:float": {float},
    "tag:yaml.org,2002:timestamp": set(),
}
# typing's stub of get_origin lacks the return type for lists.
_origin: Callable[[Any], Any] = get_origin
_QUOTES = ("'", '"')
_RESOLVER = yaml.resolver.Resolver()


def parse_yaml(text: str, types: Types = (), as_one: bool = False) -> Any:
    """Parses YAML text whose value should have one of the types; refuses tags of Python objects.
    Raises ValueError, in one line, if the text is not YAML or larger than a configuration.

    as_one: the text is one plain scalar, whatever YAML syntax it contains.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
    try:
        loader = _Loader(text)
        node = _scalar(text) if as_one else loader.get_single_node()
        if node is None:
            return None
        return loader.construct_document(_typed(node, types))
    except InputError:
        raise
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except Exception as error:  # a bad value of a known tag may raise any error
        said = str(error).replace('"<unicode string>", ', "")
        raise ValueError(" ".join(said.split())) from None


def types_of(annotation: Any) -> Types:
    """Lists the types in an annotation: those in a union, without `Annotated`."""
    inner = get_args(annotation)
    if _origin(annotation) is Annotated:
        return types_of(inner[0])
    if _origin(annotation) in (Union, UnionType):
        return [kind for one in inner for kind in types_of(one)]
    return [annotation]


def types_of_key(types: Types, key: str) -> Types:
    """Lists the types that the value of `key` may have in a section of one of `types`."""
    found: list[Any] = []
    for kind in types:
        if isinstance(kind, Mapping):
            found += kind.get(key, ())
        elif _origin(kind) is dict:
            found += types_of(get_args(kind)[1])
        elif key in getattr(kind, "model_fields", ()):
            found += types_of(kind.model_fields[key].annotation)
    return found


def parse_typed(text: str, types: Types) -> Any:
    """Parses a setting's text as YAML; if the type is text, unquoted text is taken literally."""
    written, is_list = text.strip(), _take_text(_items(types))
    quoted = written[:1] in _QUOTES, written[-1:] in _QUOTES
    if is_list and any(quoted):
        try:
            return parse_yaml(f"[{written}]", types)
        except InputError:
            raise
        except ValueError:
            raise InputError(f'{written}: quote each item as a whole, as in "a,b",c') from None
    if all(quoted) and written[0] == written[-1]:
        return parse_yaml(written, types)
    if (is_list and not written.startswith("[")) or _take_text(types):
        return parse_yaml(written, types, as_one=True)
    return parse_yaml(text, types)


def _typed(node: yaml.Node, types: Types) -> yaml.Node:
    """Returns the node with its scalars read as `types` say: text, numbers, lists, paths."""
    marks = node.start_mark, node.end_mark
    at = f" (line {marks[0].line + 1})" if marks[0] and marks[0].line else ""
    items = _items(types)
    if isinstance(node, yaml.MappingNode):
        # Aliases are refused, so that nothing is merged.
        pairs = [(key, _typed(value, types_of_key(types, key.value))) for key, value in node.value]
        return yaml.MappingNode(node.tag, pairs, *marks)
    if isinstance(node, yaml.SequenceNode):
        # A list of sections, which are merged: items have the section's types.
        each = items or types_of_key(types, EACH) or types
        return yaml.SequenceNode(node.tag, [_typed(one, each) for one in node.value], *marks)
    assert isinstance(node, yaml.ScalarNode)
    is_plain = node.style is None and node.tag in _READ_AS
    if is_plain and not {int, float}.isdisjoint(types):  # not 010 (8), 1:30 (90), yes (1)
        is_yes = node.tag == _BOOL and bool not in types
        if is_yes or (node.tag in NUMBERS and re.search(r"^[-+]?0\d|:", node.value)):
            but = (
                ""
                if is_yes
                else " without a colon"
                if ":" in node.value
                else " without a leading 0"
            )
            raise InputError(f"{node.value}{at}: must be a number{but}")
    if is_plain and (not node.value or any(kind in types for kind in _READ_AS[node.tag])):
        return node
    if node.tag != _TEXT and not is_plain:
        return node
    if _take_text(items):
        parts = [part.strip() for part in node.value.split(",")] if node.style is None else []
        if parts and not all(parts):
            raise InputError(f"{node.value}{at}: an item of the list is empty; remove a comma")
        scalars = [_scalar(part, node) for part in parts or [node.value]]
        return yaml.SequenceNode(_LIST, [_typed(one, items) for one in scalars], *marks)
    if not _take_text(types):
        return node
    if Path in types and NoneType in types and node.tag == _BOOL:
        remedy = f"write ./{node.value}, or null for no folder"
        raise InputError(f"{node.value}{at}: YAML reads it as true or false; {remedy}")
    value = str(given_path(node.value)) if Path in types else node.value
    return yaml.ScalarNode(_TEXT, value, *marks)


def _take_text(types: Types) -> bool:
    return any(kind in (str, Path) or _origin(kind) is Literal for kind in types)


def _items(types: Types) -> Types:
    """Lists the item types of the lists of any length among `types`; [] if there are none."""
    lists = [get_args(kind) for kind in types if _origin(kind) in (list, tuple)]
    return [kind for inner in lists if inner[1:] in ((), (...,)) for kind in types_of(inner[0])]


def _scalar(text: str, like: yaml.ScalarNode | None = None) -> yaml.ScalarNode:
    """Makes a scalar node: text if `like` is a quoted scalar, else the type that YAML infers."""
    start, end, style = (like.start_mark, like.end_mark, like.style) if like else (None, None, None)
    tag = _TEXT if style else _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    return yaml.ScalarNode(tag, text, start, end, style)


class _Loader(yaml.SafeLoader):
    """Loads YAML without aliases (a few lines make billions of values) or repeated keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            line = self.peek_event().start_mark.line + 1
            raise ValueError(f"line {line} has an alias (*NAME); write its value instead")
        node = super().compose_node(parent, index)
        known = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in known:
                    line = key.start_mark.line + 1
                    raise ValueError(f"key {key.value!r} is written a second time in line {line}")
                known.add((key.tag, key.value))
        if node and node.tag in NUMBERS and len(node.value) > MAX_DIGITS:
            raise ValueError(f"a number has more than {MAX_DIGITS} digits")
        return node
