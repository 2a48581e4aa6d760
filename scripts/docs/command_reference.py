"""Prints the command reference, made from the programs themselves.

python scripts/docs/command_reference.py
"""

import argparse
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from typer.models import CommandInfo, OptionInfo, ParameterInfo, ParamMeta
from typer.utils import get_params_from_function

from bigtrk import cli
from bigtrk.program import argument_parser
from partition import cli as partition_cli
from scripts.docs.table import Table
from scripts.docs.types_in_words import LARGEST, cell, kind_of

HEAD = """# Commands

`bigtrk COMMAND --help` says the same; `bigtrk --version` prints the version, and `bigtrk
--install-completion` completes commands and options in bash, zsh and fish.
"""
_COLUMNS = ("argument or option", "type", "default", "meaning")


@dataclass(frozen=True)
class Parameter:
    """An argument or an option as it is typed."""

    name: str
    kind: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Command:
    """A command: the text that can be typed after a program's name."""

    name: str
    text: str
    parameters: list[Parameter]


def commands() -> Iterator[Command]:
    """Yields every command of `bigtrk`; two of them are programs, too."""
    programs = {"train": _training, "partition": _partitioning}
    for registered in cli.app.registered_commands:
        assert registered.callback is not None
        name = registered.name or registered.callback.__name__
        yield programs[name]() if name in programs else _command(name, registered)
    for group in cli.app.registered_groups:
        assert group.typer_instance is not None
        for registered in group.typer_instance.registered_commands:
            yield _command(f"{group.name} {registered.name}", registered)


def _partitioning() -> Command:
    """Describes `python -m partition`, which has one command."""
    (only,) = partition_cli.app.registered_commands
    return _command("partition", only)


def _training() -> Command:
    """Describes `bigtrk/train.py`, whose ranks do not wait for typer."""
    parser = argument_parser("bigtrk train")
    parameters = [
        Parameter(_typed(action), "", "", action.help or "")
        for action in parser._actions
        if action.help != argparse.SUPPRESS and action.dest != "help"
    ]
    example = re.sub("Example: (.*)", r"Example: `\1`", parser.epilog or "")
    return Command("train", f"{parser.description}\n\n{example}", parameters)


def _typed(action: argparse.Action) -> str:
    return " ".join([*action.option_strings[-1:], str(action.metavar or "")]).strip()


def _command(name: str, registered: CommandInfo) -> Command:
    assert registered.callback is not None
    texts = [registered.help or inspect.getdoc(registered.callback), registered.epilog]
    given = get_params_from_function(registered.callback).values()
    return Command(name, "\n\n".join(filter(None, texts)), list(map(_parameter, given)))


def _parameter(given: ParamMeta) -> Parameter:
    told, default = given.default, given.default.default
    default = default.value if isinstance(default, Enum) else default
    ends = (("≥", told.min), ("≤", told.max))
    limits = [f"{sign} {end}" for sign, end in ends if end is not None and end < LARGEST]
    # A parameter that need not be given has no value that could be typed.
    kind = kind_of(given.annotation, *limits).replace(" or `null`", "")
    return Parameter(
        name=_option(given.name, told) or str(told.metavar or given.name.upper()),
        kind="" if given.annotation is bool else kind,
        default="" if default in (None, ..., "") or default is False else f"`{default}`",
        meaning=told.help or "",
    )


def _option(name: str, told: ParameterInfo) -> str:
    spelled = told.param_decls[0] if told.param_decls else f"--{name.replace('_', '-')}"
    return spelled if isinstance(told, OptionInfo) else ""


def command_reference() -> str:
    """Writes the page, in Markdown."""
    parts = [HEAD]
    for command in commands():
        rows = [
            (f"`{one.name}`", one.kind, one.default, cell(one.meaning))
            for one in command.parameters
        ]
        grid = Table(_COLUMNS, rows, texts=len(_COLUMNS)).markdown()
        parts.append(f"## bigtrk {command.name}\n\n{command.text}\n\n{grid}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(command_reference())
