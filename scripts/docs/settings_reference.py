"""Prints the settings reference, made from the classes of the configuration.

python scripts/docs/settings_reference.py
"""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bigtrk.config import section_kinds
from bigtrk.training.settings import Configuration
from scripts.docs.table import Table
from scripts.docs.types_in_words import LARGEST, cell, kind_of

HEAD = """# Settings

These are the settings of `bigtrk train`, `plan`, `scale` and `search`. Give them in a YAML file

```yaml
model:
  hidden: 128
```

or on the command line, `model.hidden=128`. An unknown key is an error that names the nearest one.
Without a file `bigtrk/configs/default.yaml` is used. Other settings have the defaults below.

Text, paths and words are taken as typed: `run.folder=2024-06-01`, `training.spike_guard=off`. A
list needs no brackets: `data.train=graphs,sectors`. Quotes around a value are removed. `null` means
no value, if a setting allows that. `~` and `$SCRATCH` are replaced in paths.
"""
_COLUMNS = ("key", "type", "default", "unit", "meaning")
_SIGNS = ((Ge, "ge", "≥"), (Gt, "gt", ">"), (Le, "le", "≤"), (Lt, "lt", "<"))
_UNIT = re.compile(r"\s*\[([^\]]+)\]\.?$")


@dataclass(frozen=True)
class Setting:
    """A key of the configuration. `unit` is empty where a value has none."""

    key: str
    kind: str
    default: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Section:
    """A group of keys that are documented together."""

    title: str
    text: str
    settings: list[Setting]


def sections() -> Iterator[Section]:
    """Yields the sections of the configuration in its order, and one for each model."""
    alone = {}
    for name, field in Configuration.model_fields.items():
        kinds = section_kinds(field.annotation)
        if not kinds:
            alone[name] = field
        for kind in kinds:
            title = f"{name}: {_chosen_by(kind)}" if field.discriminator else name
            text = inspect.getdoc(kind) or ""
            yield Section(title, text, _settings(kind, kind.model_fields, f"{name}."))
    yield Section("At the top", "In no section.", _settings(Configuration, alone, ""))


def _chosen_by(kind: type[BaseModel]) -> str:
    """Returns the name that chooses a model; one of the user's own has no default."""
    name = kind.model_fields["name"]
    return "of your own" if name.is_required() else str(name.default)


def _settings(kind: type[BaseModel], fields: dict[str, FieldInfo], prefix: str) -> list[Setting]:
    required = {name: "package.module:Name" for name in fields if fields[name].is_required()}
    defaults = kind.model_validate(required).model_dump(mode="json")
    found = []
    for name, field in fields.items():
        inner = section_kinds(field.annotation)
        for section in inner:
            found += _settings(section, section.model_fields, f"{prefix}{name}.")
        if not inner:
            found.append(_setting(f"{prefix}{name}", field, defaults[name]))
    return found


def _setting(key: str, field: FieldInfo, default: Any) -> Setting:
    said = " ".join((field.description or "").split())
    unit = _UNIT.search(said)
    meaning = f"{said[: unit.start()].rstrip('.')}." if unit else said
    kind = kind_of(field.annotation, *_limits(field))
    return Setting(key, kind, json.dumps(default), unit[1] if unit else "", meaning)


def _limits(field: FieldInfo) -> Iterator[str]:
    for kind, attribute, sign in _SIGNS:
        for limit in field.metadata:
            value = getattr(limit, attribute) if isinstance(limit, kind) else LARGEST
            if value < LARGEST:
                yield f"{sign} {value:g}"


def settings_reference() -> str:
    """Writes the page, in Markdown."""
    parts = [HEAD]
    for section in sections():
        rows = [
            (f"`{one.key}`", one.kind, f"`{one.default}`", one.unit, cell(one.meaning))
            for one in section.settings
        ]
        grid = Table(_COLUMNS, rows, texts=len(_COLUMNS)).markdown()
        parts.append(f"## {section.title}\n\n{section.text}\n\n{grid}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(settings_reference())
