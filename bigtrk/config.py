"""Typed configuration: YAML plus `key.sub=value` overrides; unknown keys name the nearest one."""

import difflib
import json
import re
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from reprlib import Repr
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bigtrk.disk.files import is_own_pipe, read_bytes
from bigtrk.disk.safe_yaml import MAX_BYTES, Types, parse_typed, parse_yaml, types_of, types_of_key
from bigtrk.errors import InputError, one_line, reason

Count = Annotated[int, Field(ge=0, lt=2**63)]  # of things, in files from anywhere
MOST_COMPLAINTS = 5
# What to use instead of settings that are gone, by key.
GONE = {
    "model.init_partly": "start from weights of the same model, or train from the start",
    "training.auto_bf16": "set model.precision=bf16",
    "training.spill_to_network": "leave it out: training.spill takes network file systems, too",
    "population.lag": "leave it out: all trials of a round wait for each other",
    # In DeepSpeed's files.
    **dict.fromkeys(("tensorboard", "wandb", "csv_monitor"), "use run.loggers"),
    **dict.fromkeys(("flops_profiler", "comms_logger", "wall_clock_breakdown"), "set profile=true"),
    **dict.fromkeys(("memory_breakdown", "dump_state", "compute_grad_norm"), "leave it out"),
}
# Messages quote values as given; a bad value may be very long, so it is shortened.
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 200


class Settings(BaseModel):
    """A section of settings. A field's docstring is its meaning, with its unit in brackets last."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


Tree = TypeVar("Tree", bound=BaseModel)


def load_settings(kind: type[Tree], path: Path | None, overrides: Sequence[str] = ()) -> Tree:
    """Reads the settings in `path` (None: all defaults), with overrides; InputError if invalid."""
    content = read_yaml(path, [kind]) if path else {}
    return apply_overrides(kind, content, overrides, str(path or "configuration"))


def apply_overrides(
    kind: type[Tree], content: dict[str, Any], overrides: Sequence[str], source: str
) -> Tree:
    """Returns `content` as settings, each `key.sub=value` set; InputError if one is invalid."""
    for override in overrides:
        _apply(content, override, [kind])
    return parse(kind, content, source, overrides)


def parse(
    kind: type[Tree],
    content: Any,
    source: str,
    overrides: Sequence[str] = (),
    remedy: str | None = None,
) -> Tree:
    """Validates `content` as settings; InputError names the key, and `source` or the override, and
    ends in the `remedy`.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        errors = error.errors()[:MOST_COMPLAINTS]
        first, *more = (_complaint(kind, dict(item), source, overrides) for item in errors)
        more = [one.removeprefix(f"{source}: ") for one in more]
        raise InputError("; ".join(filter(None, [first, *more, remedy]))) from None


def override(key: str, value: Any) -> str:
    """Writes a setting as `key.sub=value`; the value is in JSON, which YAML includes."""
    return f"{key}={json.dumps(value)}"


def flat(content: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns the values of nested sections, each in JSON, by dotted key."""
    found: dict[str, str] = {}
    for name, value in content.items():
        key = f"{prefix}{name}"
        found |= flat(value, f"{key}.") if isinstance(value, dict) else {key: json.dumps(value)}
    return found


def read_yaml(path: Path, types: Types = ()) -> dict[str, Any]:
    """Reads a YAML mapping as one of `types`, {} if empty; InputError if it is no mapping."""
    text = read_bytes(path, MAX_BYTES, piped=True)
    try:
        content = parse_yaml(text.decode(), types)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except ValueError as error:
        raise InputError(f"{path}: is not valid YAML ({reason(error)}); correct it") from None
    if content is None and is_own_pipe(path):
        raise InputError(f"{path}: is empty; check the command that writes into this pipe")
    if not isinstance(content, dict | None):
        raise InputError(f"{path}: must consist of settings, each written as 'key: value'")
    return content or {}


def _apply(content: dict[str, Any], override: str, types: Types) -> None:
    key, equals, text = override.partition("=")
    told = f"setting {override!r}"
    if not equals or not key:
        raise InputError(f"{told}: write key.sub=value, such as model.hidden=64")
    *sections, name = key.split(".")
    try:
        value = parse_typed(text, types_of_setting(types, key))
    except InputError as error:
        raise InputError(f"{told}: {error}") from None
    except ValueError as error:
        raise InputError(f"{told}: is not valid YAML ({reason(error)}); correct it") from None
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise InputError(f"{told}: {section!r} is a value, not a section; correct the key")
    content[name] = value


def types_of_setting(types: Types, key: str) -> Types:
    """Lists the types that the setting with a dotted key may have."""
    return reduce(types_of_key, key.split("."), types)


def _complaint(
    kind: type[BaseModel], error: dict[str, Any], source: str, overrides: Sequence[str]
) -> str:
    place = error["loc"]
    field = kind.model_fields.get(str(place[0])) if place else None
    if field is not None and field.discriminator:  # then the name of one of several kinds follows
        place = [place[0], *place[2:]]
    key = one_line(".".join(map(str, place)))
    given = [override for override in overrides if overlap(key, override.partition("=")[0])]
    where = f"setting {given[-1]!r}" if given else source
    if not key:  # blame the overrides named in the message before its remedy
        before = re.split("; |: set ", error["msg"])[0]
        named = re.findall(r"[a-z_0-9]+(?:\.[a-z_0-9]+)+", before)
        blamed = [f"setting {one!r}" for one in overrides if one.partition("=")[0] in named]
        where = " and ".join(blamed) or source
    if error["type"] == "extra_forbidden" and key in GONE:
        return f"{where}: key {key!r} was removed; {GONE[key]}"
    if error["type"] == "extra_forbidden":
        known, section = keys(kind), key.rpartition(".")[0]
        siblings = [one for one in known if one.rpartition(".")[0] == section]
        return f"{where}: unknown key {key!r}{nearest(key, known, siblings)}"
    if error["type"] == "missing":
        return f"{where}: key {key!r} is missing"
    if error["type"] == "union_tag_invalid":
        known = error["ctx"]["expected_tags"]
        return (
            f"{where}: {key}.name: must be one of {known} (got {_SHORT.repr(error['ctx']['tag'])})"
        )
    if error["type"] == "value_error" and isinstance(error["input"], dict):
        # A validator of the section raised this, and its message names the fault.
        said = one_line(str(error["ctx"]["error"]))
        is_named = said.startswith(tuple(f"{override}: " for override in overrides))
        return said if is_named else f"{where}: {f'{key}: ' if key else ''}{said}"
    if not key:
        return f"{where}: must hold keys and their values (got {_SHORT.repr(error['input'])})"
    return f"{where}: {key}: {one_line(error['msg'])} (got {_SHORT.repr(error['input'])})"


def overlap(key: str, other: str) -> bool:
    """True if two dotted keys are the same, or one is a section that contains the other."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def nearest(key: str, known: Sequence[str], siblings: Sequence[str] = ()) -> str:
    """Returns a hint for a message: the known key nearest to `key`, other than its section. If none
    is near, the hint lists `siblings`, the keys of the same section, or else all keys.
    """
    others = [one for one in known if not key.startswith(f"{one}.")]
    close = difflib.get_close_matches(key, others, n=1, cutoff=0.5)
    listed = ", ".join(siblings or known)
    return f"; did you mean {close[0]!r}?" if close else f"; choose one of {listed}"


def keys(kind: type[BaseModel], prefix: str = "") -> list[str]:
    """Lists the dotted keys of all sections and settings, as files name them."""
    found = []
    for name, field in kind.model_fields.items():
        key = prefix + (field.alias or name)
        found.append(key)
        for section in section_kinds(field.annotation):
            found += keys(section, f"{key}.")
    return list(dict.fromkeys(found))


def section_kinds(annotation: Any) -> list[type[BaseModel]]:
    """Lists a section field's classes; several if its name chooses one, [] if it is no section."""
    kinds = [kind for kind in types_of(annotation) if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, BaseModel)]
